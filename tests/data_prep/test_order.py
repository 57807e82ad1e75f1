"""The order of samples: index, blend and windows, against the recorded outputs and against the rules as they read."""

import hashlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.sample_order import blend
from data_prep.sample_order.sample_index import build_sample_index
from data_prep.sample_order.token_windows import BlendedDataset, SingleDataset, open_token_windows
from stage.errors import InputError
from tests.support import SHARED_GOLDEN, golden, needs_shared, write_dataset, write_golden_corpora

CASES = golden("data_manifest.json")["cases"]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpora")
    write_golden_corpora(folder)
    return folder


def _open(case: dict[str, Any], kind: str, corpora: Path) -> SingleDataset | BlendedDataset | None:
    arguments = case["args"]
    data_path = arguments[f"{kind}_data_prefix"]
    if data_path is None:
        return None
    windows = open_token_windows(
        [str(corpora / word) if word in "ABV" else word for word in data_path],
        sequence_length=arguments["seq_length"],
        num_samples=arguments["train_valid_test_num_samples"][["train", "valid"].index(kind)],
        seed=arguments["seed"],
        plus_one=arguments["use_seq_len_plus_one_tokens"],
    )
    assert isinstance(windows, SingleDataset | BlendedDataset)
    return windows


def _arrays(windows: SingleDataset | BlendedDataset, kind: str) -> dict[str, np.ndarray[Any, Any]]:
    """Under the names of the recorded arrays."""
    found: dict[str, np.ndarray[Any, Any]] = {}
    parts = [windows] if isinstance(windows, SingleDataset) else windows.parts
    for number, part in enumerate(parts):
        prefix = f"{kind}/" if isinstance(windows, SingleDataset) else f"{kind}/{number}/"
        for name in ("document_idx", "sample_idx", "shuffle_idx"):
            found[prefix + name] = getattr(part.index, name)
    if isinstance(windows, BlendedDataset):
        found[f"{kind}/dataset_index"] = windows.dataset_index
        found[f"{kind}/dataset_sample_index"] = windows.dataset_sample_index
    return found


@pytest.mark.parametrize("kind", ["train", "valid"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["case"]))
def test_recorded_orders_are_reproduced(case: dict[str, Any], kind: str, corpora: Path) -> None:
    for folder in corpora.glob("*.index"):
        shutil.rmtree(folder)
    _assert_as_recorded(case, kind, corpora)
    built = sorted(corpora.glob("*.index/*.npy"))
    _assert_as_recorded(case, kind, corpora)  # from the files
    assert sorted(corpora.glob("*.index/*.npy")) == built


def _assert_as_recorded(case: dict[str, Any], kind: str, corpora: Path) -> None:
    windows = _open(case, kind, corpora)
    if windows is None:
        return
    assert len(windows) == case["lengths"][kind]
    recorded = {name: value for name, value in case["arrays"].items() if name.startswith(kind)}
    found = _arrays(windows, kind)
    assert set(found) == set(recorded)
    for name, (dtype, shape, md5) in recorded.items():
        array = found[name]
        assert (array.dtype.name, list(array.shape)) == (dtype, shape), name
        assert hashlib.md5(array.tobytes()).hexdigest() == md5, name
    digest = hashlib.md5()
    for sample in range(*case["all_samples"][kind]["range"]):
        digest.update(windows.window(sample).tobytes())
    assert digest.hexdigest() == case["all_samples"][kind]["md5_of_int64_rows"]


@needs_shared
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["case"]))
def test_recorded_arrays_one_by_one(case: dict[str, Any], corpora: Path) -> None:
    recorded = np.load(SHARED_GOLDEN / "data" / f"{case['case']}.npz")
    for kind in ("train", "valid"):
        windows = _open(case, kind, corpora)
        if windows is None:
            continue
        for name, array in _arrays(windows, kind).items():
            np.testing.assert_array_equal(array, recorded[name], strict=True)
        for part in ("first", "last", "last_requested"):
            for sample, tokens in zip(recorded[f"{kind}/{part}_ids"], recorded[f"{kind}/{part}_tokens"], strict=True):
                np.testing.assert_array_equal(windows.window(int(sample)), tokens)


def _walk(sizes: list[int], epochs: int, length: int, total: int, extra: int) -> list[tuple[int, int]]:
    """The reference's walk through the documents (item 5 of docs/facts/reference.md b.2), one sample at a time."""
    documents = list(range(len(sizes))) * epochs
    position, offset = 0, 0
    starts = [(0, 0)]
    for _ in range(total):
        remaining = length + extra
        while True:
            here = sizes[documents[position]] - offset
            remaining -= here
            if remaining <= 0:
                offset += remaining + here - extra
                break
            if position + 1 == len(documents):
                offset = sizes[documents[position]] - extra
                break
            position, offset = position + 1, 0
        starts.append((position, offset))
    return starts


@settings(max_examples=200, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    length=st.integers(1, 20),
    num_samples=st.integers(-1, 60),
    plus_one=st.booleans(),
)
def test_sample_starts_are_those_of_the_walk(sizes: list[int], length: int, num_samples: int, plus_one: bool) -> None:
    extra = int(plus_one)
    if sum(sizes) <= extra:
        return
    index = build_sample_index(
        np.array(sizes, np.int32), sequence_length=length, num_samples=num_samples, seed=5, plus_one=plus_one
    )
    total = len(index.shuffle_idx)
    expected = _walk(sizes, index.num_epochs, length, total, extra)
    assert [tuple(row) for row in index.sample_idx.tolist()] == expected
    assert sorted(index.shuffle_idx.tolist()) == list(range(total))
    assert total >= num_samples
    if index.num_epochs > 1:  # one epoch less would not have been enough
        assert ((index.num_epochs - 1) * sum(sizes) - extra) // length < num_samples


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    length=st.integers(1, 20),
    num_samples=st.integers(-1, 40),
)
def test_windows_are_cut_from_the_documents_end_to_end(
    sizes: list[int], length: int, num_samples: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    prefix = tmp_path_factory.mktemp("data") / "x"
    tokens = write_dataset(prefix, sizes)
    windows = open_token_windows([str(prefix)], sequence_length=length, num_samples=num_samples, seed=3)
    assert isinstance(windows, SingleDataset)
    stream = np.concatenate([np.tile(tokens, windows.index.num_epochs), np.full(length, -1)])
    for sample, k in enumerate(windows.index.shuffle_idx.tolist()):
        np.testing.assert_array_equal(windows.window(sample), stream[k * length : (k + 1) * length])


def test_epochs_are_shuffled_apart_only_when_the_last_is_needed_in_part() -> None:
    sizes = np.full(10, 10, np.int32)  # 20 samples of 5 tokens per epoch
    for num_samples, separate in ((21, True), (35, True), (36, False), (40, False)):
        index = build_sample_index(sizes, sequence_length=5, num_samples=num_samples, seed=1)
        assert (index.num_epochs, index.separate_last_epoch) == (2, separate), num_samples
        if separate:
            assert sorted(index.shuffle_idx[:20].tolist()) == list(range(20))


@settings(max_examples=100, deadline=None)
@given(
    weights=st.lists(st.floats(0.001, 1000), min_size=2, max_size=2),
    start=st.integers(0, 2000),
)
def test_the_shortcut_for_two_datasets_chooses_as_the_rule_does(weights: list[float], start: int) -> None:
    share = blend.normalized(weights)
    before = blend._choose_one_by_one(share, [0, 0], slice(0, start))
    counts = [int(np.count_nonzero(before == index)) for index in range(2)]
    block = slice(start, start + 300)
    shortcut = blend._choose_of_two(share, counts[0], block)
    assert shortcut is not None
    np.testing.assert_array_equal(shortcut, blend._choose_one_by_one(share, counts, block))


@pytest.mark.parametrize("weights", [[0.3, 0.7], [0.1, 0.9], [0.5, 0.5], [1.0, 0.0]])
def test_ties_in_the_blend_are_broken_in_float64(weights: list[float]) -> None:
    shortcut = blend._choose_of_two(weights, 0, slice(0, 20_000))
    assert shortcut is not None
    np.testing.assert_array_equal(shortcut, blend._choose_one_by_one(weights, [0, 0], slice(0, 20_000)))


def test_blend_counts_each_dataset_through() -> None:
    dataset, sample = blend.blend_index(blend.normalized([2, 1, 1]), 1000)
    for index in range(3):
        np.testing.assert_array_equal(sample[dataset == index], np.arange(np.count_nonzero(dataset == index)))
    np.testing.assert_allclose(np.bincount(dataset) / 1000, [0.5, 0.25, 0.25], atol=0.002)


def test_blend_does_not_depend_on_the_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = blend.blend_index([0.3, 0.7], 1000)
    monkeypatch.setattr(blend, "BLOCK", 7)
    for array, expected in zip(blend.blend_index([0.3, 0.7], 1000), whole, strict=True):
        np.testing.assert_array_equal(array, expected)


def test_margin_of_the_benchmark() -> None:
    assert blend.samples_per_dataset(20_000_000, [0.5, 0.5]) == [10_050_000, 10_050_000]
    assert blend.samples_per_dataset(-1, [0.5, 0.5]) == [-1, -1]  # the reference: 0 (docs/facts/reference.md j.16)


def test_evaluating_two_validation_sets_reads_both_whole(tmp_path: Path) -> None:
    for name in ("x", "y"):
        write_dataset(tmp_path / name, [7, 8])
    data_path = ["0.5", str(tmp_path / "x"), "0.5", str(tmp_path / "y")]
    windows = open_token_windows(data_path, sequence_length=4, num_samples=-1, seed=1)
    assert len(windows) == 8
    assert sum(int((windows.window(sample) >= 0).sum()) for sample in range(8)) == 30


def test_reading_past_the_shorter_dataset_is_an_error(tmp_path: Path) -> None:
    write_dataset(tmp_path / "long", [400])
    write_dataset(tmp_path / "short", [40])
    data_path = ["0.5", str(tmp_path / "long"), "0.5", str(tmp_path / "short")]
    windows = open_token_windows(data_path, sequence_length=4, num_samples=-1, seed=1)
    with pytest.raises(InputError, match=r"blended sample 21 would be sample 10 of .*short, which has 10"):
        windows.window(21)


@pytest.mark.parametrize("data_path", [["a", "b"], ["0.5", "a", "b"], ["a", "0.5"], []])
def test_bad_data_paths_are_refused(data_path: list[str]) -> None:
    with pytest.raises(InputError, match="expected one prefix, or weights and prefixes in turn"):
        open_token_windows(data_path, sequence_length=4, num_samples=1, seed=1)


@pytest.mark.parametrize("weights", [[-1.0, 2.0], [0.0, 0.0], [float("nan"), 1.0]])
def test_bad_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(InputError, match="expected numbers >= 0 with a positive sum"):
        blend.normalized(weights)


def test_an_empty_dataset_is_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path / "x", [])
    with pytest.raises(InputError, match="x: a dataset of 0 tokens holds no sample"):
        open_token_windows([str(tmp_path / "x")], sequence_length=4, num_samples=1, seed=1)
