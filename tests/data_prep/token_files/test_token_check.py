"""Quick checks of token files: the places that are read, whatever the size of the file."""

from pathlib import Path

import numpy as np
import pytest

from data_prep.token_files import token_check
from data_prep.token_files.token_check import BLOCK_BYTES, require_index, token_problem
from foundation.errors import InputError
from tests.support import write_dataset


@pytest.mark.parametrize("blocks", [0, 1, 3, 4, 5, 9])
@pytest.mark.parametrize("dtype", ["<u2", "<i4"])
@pytest.mark.parametrize("more_tokens", [0, 7])
def test_beginning_and_end_are_read(
    blocks: int, dtype: str, more_tokens: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_check, "BLOCKS", 4)
    path = tmp_path / "x.bin"
    ids = np.full(blocks * BLOCK_BYTES // np.dtype(dtype).itemsize + more_tokens, 49, dtype)
    ids.tofile(path)
    assert token_problem(path, np.dtype(dtype), 50) is None
    for place in (0, -1) if len(ids) else ():
        damaged = ids.copy()
        damaged[place] = 60
        damaged.tofile(path)
        assert token_problem(path, np.dtype(dtype), 61) is None
        assert "x.bin: holds token 60, but the vocabulary has 60" in str(token_problem(path, np.dtype(dtype), 60))


def test_ids_of_a_smaller_vocabulary_are_described(tmp_path: Path) -> None:
    """GPT-3's token files for Llama's model, in either type."""
    path, ids = tmp_path / "x.bin", np.arange(1_050_000) % 50_257
    ids.astype("<u2").tofile(path)
    assert token_problem(path, np.dtype("<u2"), 50_257) is None
    assert "x.bin: ids of uint16, but the vocabulary has 128256" in str(token_problem(path, np.dtype("<u2"), 128_256))
    ids.astype("<i4").tofile(path)
    assert "ids is 50256, but the vocabulary has 128256" in str(token_problem(path, np.dtype("<i4"), 128_256))
    assert token_problem(path, np.dtype("<i4"), 100_512) is None
    ids[:900_000].astype("<i4").tofile(path)
    assert token_problem(path, np.dtype("<i4"), 128_256) is None  # too few to say


def test_negative_ids_and_zeros_are_described(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    np.array([3, -2, 5], "<i4").tofile(path)
    assert "holds token -2, but the vocabulary has 9" in str(token_problem(path, np.dtype("<i4"), 9))
    np.zeros(BLOCK_BYTES // 4 - 1, "<i4").tofile(path)
    assert token_problem(path, np.dtype("<i4"), 9) is None  # a few zeros are a text of the first token
    np.zeros(3 * BLOCK_BYTES, "u1").tofile(path)
    assert "bytes 0 to 16,383 are zeros" in str(token_problem(path, np.dtype("<i4"), 9))


def test_an_index_is_compared_with_the_tokens_if_they_are_beside_it(tmp_path: Path) -> None:
    write_dataset(tmp_path / "x", [3, 4])
    require_index(tmp_path / "x.idx")
    (tmp_path / "x.bin").write_bytes(b"1")
    with pytest.raises(InputError, match=r"x\.bin: 1 bytes, but x\.idx describes 14"):
        require_index(tmp_path / "x.idx")
    (tmp_path / "x.bin").unlink()
    require_index(tmp_path / "x.idx")
    (tmp_path / "x.idx").write_bytes(bytes(34))
    with pytest.raises(InputError, match=r"x\.idx: not an MMIDIDX version 1 index"):
        require_index(tmp_path / "x.idx")
