"""The windows that training reads, against the recorded outputs and cut from the documents."""

import hashlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.sample_order.token_windows import BlendedDataset, SingleDataset, open_token_windows
from foundation.errors import InputError
from tests.support import golden, write_dataset, write_golden_corpora

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
        natural = np.arange(part.index.num_documents, dtype=np.int32)  # the reference keeps what a division tells
        found[f"{prefix}document_idx"] = np.tile(natural, part.index.num_epochs)
        for name in ("sample_idx", "shuffle_idx"):
            found[prefix + name] = np.asarray(getattr(part.index, name))
    if isinstance(windows, BlendedDataset):
        found[f"{kind}/dataset_index"] = np.asarray(windows.dataset_index)
        found[f"{kind}/dataset_sample_index"] = np.asarray(windows.dataset_sample_index)
    return found


@pytest.mark.parametrize("kind", ["train", "valid"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["case"]))
def test_recorded_orders_are_reproduced(case: dict[str, Any], kind: str, corpora: Path) -> None:
    for folder in corpora.glob("*.index"):
        shutil.rmtree(folder)
    _assert_as_recorded(case, kind, corpora)
    built = sorted(corpora.glob("*.index/*/*.npy"))
    _assert_as_recorded(case, kind, corpora, windows=False)  # from the files
    assert sorted(corpora.glob("*.index/*/*.npy")) == built


def _assert_as_recorded(case: dict[str, Any], kind: str, corpora: Path, *, windows: bool = True) -> None:
    opened = _open(case, kind, corpora)
    if opened is None:
        return
    assert len(opened) == case["lengths"][kind]
    recorded = {name: value for name, value in case["arrays"].items() if name.startswith(kind)}
    found = _arrays(opened, kind)
    assert set(found) == set(recorded)
    for name, (dtype, shape, md5) in recorded.items():
        array = found[name]
        assert (array.dtype.name, list(array.shape)) == (dtype, shape), name
        assert hashlib.md5(array.tobytes()).hexdigest() == md5, name
    if not windows:
        return
    digest = hashlib.md5()
    for sample in range(*case["all_samples"][kind]["range"]):
        digest.update(opened.window(sample).tobytes())
    assert digest.hexdigest() == case["all_samples"][kind]["md5_of_int64_rows"]


def test_windows_are_cut_from_the_documents_end_to_end(tmp_path_factory: pytest.TempPathFactory) -> None:
    @settings(max_examples=10)
    @given(
        sizes=st.lists(st.integers(1, 30), min_size=1, max_size=12),
        length=st.integers(1, 20),
        num_samples=st.integers(-1, 40),
    )
    def check(sizes: list[int], length: int, num_samples: int) -> None:
        prefix = tmp_path_factory.mktemp("data") / "x"
        tokens = write_dataset(prefix, sizes)
        windows = open_token_windows([str(prefix)], sequence_length=length, num_samples=num_samples, seed=3)
        assert isinstance(windows, SingleDataset)
        stream = np.concatenate([np.tile(tokens, windows.index.num_epochs), np.full(length, -1)])
        for sample, k in enumerate(windows.index.shuffle_idx[:].tolist()):
            np.testing.assert_array_equal(windows.window(sample), stream[k * length : (k + 1) * length])

    check()


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


def test_an_empty_dataset_is_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path / "x", [])
    with pytest.raises(InputError, match="x: a dataset of 0 tokens holds no sample"):
        open_token_windows([str(tmp_path / "x")], sequence_length=4, num_samples=1, seed=1)


@pytest.mark.parametrize("pointer", [-2, 1, 1 << 40, 4])
def test_pointers_that_lead_elsewhere_are_found(pointer: int, tmp_path: Path) -> None:
    """Before any index is built of them, and where one was built before, when they lead outside."""
    write_dataset(tmp_path / "x", [3, 4, 5])
    arguments: dict[str, Any] = {"sequence_length": 4, "num_samples": -1, "seed": 1}
    windows = open_token_windows([str(tmp_path / "x")], **arguments)
    index = bytearray((tmp_path / "x.idx").read_bytes())
    index[34 + 12 + 8 : 34 + 12 + 16] = pointer.to_bytes(8, "little", signed=True)
    (tmp_path / "y.idx").write_bytes(index)
    (tmp_path / "y.bin").write_bytes((tmp_path / "x.bin").read_bytes())
    with pytest.raises(InputError, match=r"y.idx: document 1 has 4 tokens from byte .* expected 0 or more from byte 6"):
        open_token_windows([str(tmp_path / "y")], **arguments)
    if pointer != 4:
        (tmp_path / "x.idx").write_bytes(index)
        windows = open_token_windows([str(tmp_path / "x")], **arguments)
        with pytest.raises(InputError, match=r"x.idx: document 1 lies at byte"):
            [windows.window(sample) for sample in range(3)]


@pytest.mark.parametrize(("kind", "factor"), [("shuffle_idx", 1000), ("sample_idx", -1), ("sample_idx", 1 << 20)])
def test_an_index_that_makes_up_no_sample_is_one_line(kind: str, factor: int, tmp_path: Path) -> None:
    write_dataset(tmp_path / "x", [7, 30, 1, 12, 5])
    arguments: dict[str, Any] = {"sequence_length": 4, "num_samples": 40, "seed": 3}
    open_token_windows([str(tmp_path / "x")], **arguments)
    (path,) = (tmp_path / "x.index").glob(f"*/{kind}.npy")
    array = np.load(path)
    np.save(path, (array * factor).astype(array.dtype))
    windows = open_token_windows([str(tmp_path / "x")], **arguments)
    with pytest.raises(InputError, match=r"x: sample \d+ is no 4 tokens by its index; x.idx or .* x.index"):
        [windows.window(sample) for sample in range(len(windows))]
