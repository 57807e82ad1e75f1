"""Joining pieces: their ids and lengths in order, and a piece that was spoilt is refused and removed."""

from pathlib import Path

import numpy as np
import pytest

from data_prep.preprocessing.join_pieces import join_pieces
from stage.errors import InputError
from stage.outputs.digest import md5_file
from stage.outputs.manifest import Recipe
from stage.outputs.resumable_output import NewPiece, ResumableOutput, resumable_output

DOCUMENTS = {"0": [[1, 2, 3], [4]], "1": [[5, 6]]}


def add_pieces(job: ResumableOutput) -> None:
    for name, documents in DOCUMENTS.items():
        path, ids = job.new_path(), np.array([one for ids in documents for one in ids], "<u2")
        path.write_bytes(ids.tobytes() + np.array([len(one) for one in documents], "<i4").tobytes())
        facts = {"source_md5": "0", "documents": len(documents), "tokens": len(ids)}
        job.add([NewPiece(name, path, md5_file(path), facts)])


@pytest.mark.parametrize("spoilt", [b"\0" * 12, b"\0" * 13, b""], ids=["zeros", "longer", "empty"])
def test_a_spoilt_piece_is_removed_to_be_made_again(spoilt: bytes, tmp_path: Path) -> None:
    with resumable_output(tmp_path / "x", Recipe("preprocess", {}, [])) as job:
        assert job is not None
        add_pieces(job)
        job.path("0").write_bytes(spoilt)
        with pytest.raises(InputError, match="does not hold what was written"):
            join_pieces(job, ["0", "1"], np.dtype("<u2"))
        assert not job.path("0").exists()
        assert list((job.folder / "writing").iterdir()) == []
