"""Megatron-Core's order: the rows recorded of its code, and its rule written out in plain Python."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.sample_order import sample_index, shuffled_documents, window_counts
from data_prep.sample_order.blend import megatron_core_samples, normalized_twice
from data_prep.sample_order.shuffled_documents import build_shuffled_index
from data_prep.sample_order.token_windows import BlendedDataset, SingleDataset, open_token_windows
from foundation.errors import InputError
from tests.support import assert_refused, command, golden, write_dataset, write_golden_corpora

CASES = golden("llama_order.json")["cases"]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpora")
    write_golden_corpora(folder)
    return folder


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{'_'.join(case['data_path'])}_{case['num_samples']}")
def test_recorded_rows_are_reproduced(case: dict[str, Any], corpora: Path) -> None:
    windows = open_token_windows(
        [str(corpora / word) if word in "AB" else word for word in case["data_path"]],
        sequence_length=case["seq_length"],
        num_samples=case["num_samples"],
        seed=case["seed"],
        plus_one=True,
        shuffle_documents=True,
    )
    digest = hashlib.md5()
    for sample in range(case["rows"]):
        row = windows.window(sample)
        assert row.shape == (case["seq_length"] + 1,)
        if sample == 0:
            assert row[:8].tolist() == case["first_row_begins"]
        digest.update(row.tobytes())
    assert digest.hexdigest() == case["md5_of_int64_rows"]


def test_samples_writes_the_recorded_rows(corpora: Path, tmp_path: Path) -> None:
    case = CASES[0]
    arguments = ["--data-path", corpora / "A", "--seq-length", case["seq_length"], "--num-samples", case["num_samples"]]
    arguments += ["--seed", case["seed"], "--plus-one", "--shuffle-documents"]
    assert command("data_prep", "samples", *arguments, "--output", tmp_path / "all.npy").returncode == 0
    rows = np.load(tmp_path / "all.npy")
    assert (rows.dtype, rows.shape) == (np.int64, (case["rows"], case["seq_length"] + 1))
    assert hashlib.md5(rows.tobytes()).hexdigest() == case["md5_of_int64_rows"]
    arguments += ["--first", 700, "--count", 30, "--documents", "--output", tmp_path / "some.npy"]
    assert command("data_prep", "samples", *arguments).returncode == 0
    np.testing.assert_array_equal(np.load(tmp_path / "some.npy"), rows[700:730])


def _rule(tokens: list[np.ndarray[Any, Any]], length: int, num_samples: int, seed: int, extra: int) -> list[list[int]]:
    """The windows of a dataset of at least one token, in order."""
    total, epochs = sum(map(len, tokens)), 1
    while num_samples >= 0 and epochs * total < num_samples * length + extra:
        epochs += 1
    before_last = ((epochs - 1) * total - extra) // length
    apart = epochs > 1 and num_samples - before_last < int(0.80 * ((total - extra) // length))
    random = np.random.RandomState(seed)
    order: list[int] = []
    for number in (epochs - 1, 1) if apart else (epochs,):
        documents = np.array(list(range(len(tokens))) * number, np.int32)
        random.shuffle(documents)
        order += documents.tolist()
    stream = [int(token) for document in order for token in tokens[document]]
    windows = max(0, (epochs * total - extra) // length)
    shuffled: list[int] = []
    for first, stop in ((0, before_last), (before_last, windows)) if apart else ((0, windows),):
        numbers = np.arange(first, stop, dtype=np.uint32)
        random.shuffle(numbers)
        shuffled += numbers.tolist()
    return [stream[number * length : number * length + length + extra] for number in shuffled]


@pytest.mark.parametrize("block", [3, window_counts.BLOCK])
def test_windows_follow_the_rule(
    block: int, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty documents, datasets smaller than a window, many epochs."""
    monkeypatch.setattr(shuffled_documents, "BLOCK", block)
    monkeypatch.setattr(sample_index, "DOCUMENTS_AT_ONCE", block)

    @settings(max_examples=40)
    @given(
        sizes=st.lists(st.integers(0, 12), min_size=1, max_size=9).filter(any),
        length=st.integers(1, 30),
        num_samples=st.integers(-1, 60),
        seed=st.integers(0, 2**32 - 1),
        plus_one=st.booleans(),
    )
    def check(sizes: list[int], length: int, num_samples: int, seed: int, plus_one: bool) -> None:
        prefix = tmp_path_factory.mktemp("data") / "x"
        tokens = write_dataset(prefix, sizes)
        documents = np.split(tokens, np.cumsum(sizes)[:-1])
        expected = _rule(documents, length, num_samples, seed, int(plus_one))
        arguments: dict[str, Any] = {"sequence_length": length, "num_samples": num_samples, "seed": seed}
        arguments |= {"plus_one": plus_one, "shuffle_documents": True}
        if not expected and num_samples:
            with pytest.raises(InputError, match="holds no sample"):
                open_token_windows([str(prefix)], **arguments)
            return
        for _ in range(2):  # built, and from the kept files
            windows = open_token_windows([str(prefix)], **arguments)
            assert [windows.window(sample).tolist() for sample in range(len(windows))] == expected

    check()


def test_a_part_that_a_killed_process_kept_is_not_mistaken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of the windows follows from the state in which the documents leave the generator."""
    write_dataset(tmp_path / "x", [7, 30, 1, 12, 5])
    arguments: dict[str, Any] = {"sequence_length": 4, "num_samples": 40, "seed": 3, "shuffle_documents": True}
    expected = open_token_windows([str(tmp_path / "x")], **arguments)
    rows = [expected.window(sample).tolist() for sample in range(len(expected))]
    write_dataset(tmp_path / "y", [7, 30, 1, 12, 5])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shuffled_documents, "shuffled_windows", _killed)
        open_token_windows([str(tmp_path / "y")], **arguments)
    assert list(tmp_path.glob("y.index/*.partial/*/document_idx.npy"))
    again = open_token_windows([str(tmp_path / "y")], **arguments)
    assert [again.window(sample).tolist() for sample in range(len(again))] == rows


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_blends_are_those_of_megatron_core() -> None:
    """The margin is taken of a whole number of samples, and the blend has as many samples as were asked for."""
    assert megatron_core_samples(1000, [3, 7]) == ([302, 704], 1000)
    assert megatron_core_samples(11, [1, 1, 1]) == ([5, 5, 5], 12)
    assert megatron_core_samples(8984, [1]) == ([math.ceil(8984 * 1.005)], 8984)
    assert normalized_twice([10.0]) == [1.0]
    assert sum(normalized_twice([0.1] * 11)) == pytest.approx(1)
    with pytest.raises(InputError, match="expected numbers >= 0 with a positive sum"):
        normalized_twice([0.0])


def test_a_blend_of_one_asks_for_a_margin_and_a_bare_prefix_does_not(tmp_path: Path) -> None:
    write_dataset(tmp_path / "x", [50, 31])
    arguments: dict[str, Any] = {"sequence_length": 8, "num_samples": 20, "seed": 3, "shuffle_documents": True}
    alone = open_token_windows([str(tmp_path / "x")], **arguments)
    blend = open_token_windows(["10", str(tmp_path / "x")], **arguments)
    assert isinstance(alone, SingleDataset) and isinstance(blend, BlendedDataset)
    assert (alone.index.num_epochs, blend.parts[0].index.num_epochs) == (2, 3)
    assert (len(alone), len(blend)) == (20, 20)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"--num-samples": 1 << 50}, " GiB; at most 256 GiB: request fewer samples"),
        ({"--data-path": "1 OUT/x 1 OUT/x", "--num-samples": -1}, "a blend in shuffled order has no whole epoch"),
        ({"--data-path": "OUT/empty"}, "a dataset of 0 tokens holds no sample"),
        ({"--num-samples": -1, "--seq-length": 101}, "a dataset of 101 tokens holds no sample"),
        ({"--first": 13}, "--first 13 --count 0: the data path has samples 0 to 11"),
    ],
)
def test_samples_refuses(change: dict[str, object], complaint: str, tmp_path: Path) -> None:
    write_dataset(tmp_path / "x", [30, 11, 60])
    write_dataset(tmp_path / "empty", [0, 0])
    usual = {"--data-path": "OUT/x", "--seq-length": 8, "--num-samples": 4, "--seed": 1, "--output": "OUT/s.npy"}
    words = " ".join(f"{option} {value}" for option, value in (usual | change).items()).replace("OUT", str(tmp_path))
    assert_refused(command("data_prep", "samples", *words.split(), "--plus-one", "--shuffle-documents"), complaint)
    assert not (tmp_path / "s.npy").exists()


@pytest.mark.parametrize(
    ("array", "value"), [("document_idx", 99), ("document_idx", -1), ("shuffle_idx", 1000), ("sample_idx", 1 << 20)]
)
def test_a_damaged_index_is_one_line(array: str, value: int, tmp_path: Path) -> None:
    write_dataset(tmp_path / "x", [7, 30, 1, 12, 5])
    arguments: dict[str, Any] = {"sequence_length": 4, "num_samples": 40, "seed": 3, "shuffle_documents": True}
    open_token_windows([str(tmp_path / "x")], **arguments)
    (path,) = (tmp_path / "x.index").glob(f"*/{array}.npy")
    np.save(path, np.full_like(np.load(path), value))
    windows = open_token_windows([str(tmp_path / "x")], **arguments)
    with pytest.raises(InputError, match=r"x: sample 0 is no 4 tokens by its index; x.idx or .* x.index"):
        windows.window(0)


def test_positions_beyond_32_bits_are_numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a global batch size of 128 the stream has 2.7 billion documents."""
    sizes = np.array([3, 4], np.int32)
    index = build_shuffled_index(sizes, sequence_length=4, num_samples=9, seed=1)
    assert np.asarray(index.sample_idx).dtype == np.int32
    monkeypatch.setattr(shuffled_documents, "LARGEST_POSITION", 5)
    wide = build_shuffled_index(sizes, sequence_length=4, num_samples=9, seed=1)
    assert np.asarray(wide.sample_idx).dtype == np.int64
    np.testing.assert_array_equal(np.asarray(wide.sample_idx), np.asarray(index.sample_idx))


def test_a_step_of_a_benchmark(tmp_path: Path) -> None:
    write_dataset(tmp_path / "x", [300, 11, 60, 140], vocab_size=1000)
    data = ["--data-path", tmp_path / "x", "--seed", 5]
    by_name = ["--benchmark", "rehearsal_llama", "--step", 2, "--output", tmp_path / "step.npy", *data]
    assert command("data_prep", "samples", *by_name, "--json").returncode == 0
    options = ["--seq-length", 128, "--num-samples", 8192, "--plus-one", "--shuffle-documents"]
    spelt = [*options, "--first", 16, "--count", 16, "--output", tmp_path / "rows.npy", *data]
    assert command("data_prep", "samples", *spelt).returncode == 0
    np.testing.assert_array_equal(np.load(tmp_path / "step.npy"), np.load(tmp_path / "rows.npy"))
    small = ["--benchmark", "gpt3_175b", "--global-batch-size", 3, "--num-samples", 6_144_006, "--step", 2]
    done = command("data_prep", "samples", *small, "--output", tmp_path / "gpt3.npy", *data, "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["shape"] == [3, 2048]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--benchmark llama --seed 1", "unknown benchmark 'llama'; did you mean llama31_8b?"),
        ("--seed 1 --num-samples 4", "--seq-length is missing: give it, or --benchmark with one of gpt3_175b, "),
        ("--seed 1 --seq-length 4 --num-samples 4 --step 2", "--step and --global-batch-size are those of a run"),
        ("--benchmark rehearsal --seed 1 --step 0", "--step 0: expected 1 to 9020"),
    ],
)
def test_a_step_is_refused(words: str, complaint: str, tmp_path: Path) -> None:
    write_dataset(tmp_path / "x", [300])
    done = command("data_prep", "samples", "--data-path", tmp_path / "x", "--output", tmp_path / "s", *words.split())
    assert_refused(done, complaint)
