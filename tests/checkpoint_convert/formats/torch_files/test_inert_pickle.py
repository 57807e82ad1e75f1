"""Values out of strangers' archives: what is plain is read, what is not runs nothing."""

import argparse
import collections
import enum
import pickle
import zipfile
from pathlib import Path

import pytest
import torch

from checkpoint_convert.formats.torch_files.inert_pickle import Inert, read_plain_values
from stage.errors import InputError
from tests.checkpoint_convert.checkpoints import Harmful


class Kind(enum.Enum):
    RMS = 1


def saved(path: Path, value: object) -> bytes:
    torch.save(value, path)
    return path.read_bytes()


def test_plain_values_are_read_beside_anything_else(tmp_path: Path) -> None:
    arguments = argparse.Namespace(kind=Kind.RMS, dtype=torch.bfloat16, places=collections.deque([1, 2]))
    value = {"args": arguments, "iteration": 4000, "rng": [torch.randn(3), {Kind.RMS}], "order": {"a": (1.5, None)}}
    found = read_plain_values(saved(tmp_path / "a.pt", value), tmp_path)
    assert (found["iteration"], found["order"]) == (4000, {"a": (1.5, None)})
    assert isinstance(found["args"], Inert)
    assert isinstance(found["args"].state["kind"], Inert)


def test_nothing_that_is_named_is_run(tmp_path: Path) -> None:
    made = tmp_path / "made"
    found = read_plain_values(saved(tmp_path / "a.pt", {"iteration": 1, "x": Harmful(made)}), tmp_path)
    assert (found["iteration"], made.exists()) == (1, False)


def archive(path: Path, pickled: bytes, compression: int = zipfile.ZIP_STORED) -> bytes:
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("archive/data.pkl", pickled)
    return path.read_bytes()


@pytest.mark.parametrize(
    "pickled",
    [b"", b"\x80\x04", b"\x80\x04\x95" + b"\xff" * 7 + b"\x7f.", b"(" * 100_000, pickle.dumps([1])[:-3]],
    ids=["empty", "short", "huge_frame", "deep", "cut"],
)
def test_damaged_archives_are_refused(pickled: bytes, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"not what torch\.save writes"):
        read_plain_values(archive(tmp_path / "a.zip", pickled), tmp_path)


def test_what_would_take_memory_is_refused(tmp_path: Path) -> None:
    packed = archive(tmp_path / "a.zip", pickle.dumps(b"\0" * (1 << 20)), zipfile.ZIP_DEFLATED)
    with pytest.raises(InputError, match="a pickle of 1,0"):
        read_plain_values(packed, tmp_path)
    with pytest.raises(InputError, match=r"not what torch\.save writes"):
        read_plain_values(b"not a zip", tmp_path)
