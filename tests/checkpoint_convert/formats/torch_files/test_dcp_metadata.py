"""A distributed checkpoint's metadata is read as data: nothing in it runs, and no number in it takes memory."""

import random
import re
import struct
from pathlib import Path

import pytest
import torch

from checkpoint_convert.formats.torch_files.dcp_arrays import dcp_arrays
from stage.errors import InputError
from tests.checkpoint_convert.checkpoints import write_dcp, write_harmful_dcp
from tests.support import assert_refused, command

TENSORS = {"model/a": torch.ones(50, 70), "model/b": torch.arange(9).to(torch.bfloat16)}


def test_metadata_that_names_other_classes_is_not_run(tmp_path: Path) -> None:
    write_harmful_dcp(tmp_path / "c", tmp_path / "made")
    done = command("checkpoint_convert", "inspect", tmp_path / "c")
    assert_refused(done, "c/.metadata: not the metadata", "it names builtins.exec, which no checkpoint needs")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("operations", "complaint"),
    [
        (b"}r" + struct.pack("<I", 1 << 31), "LONG_BINPUT 2147483648 in 9 bytes"),  # remembers 2**31 objects
        (b"}p4294967295\n", "PUT 4294967295 in 16 bytes"),
        (b"\x95" + struct.pack("<Q", 1 << 40), "FRAME 1099511627776 in 12 bytes"),
        (b"\x8d" + struct.pack("<Q", 1 << 40), "expected 1099511627776 bytes"),
        (b"\x8e" + struct.pack("<Q", 1 << 40), "expected 1099511627776 bytes"),
        (b"\x96" + struct.pack("<Q", 1 << 40), "expected 1099511627776 bytes"),
        (b"X" + struct.pack("<I", 1 << 31), "expected 2147483648 bytes"),
        (b"\x8b" + struct.pack("<i", -1), "long4 byte count < 0"),
        (b"\x8c\x09model", "expected 9 bytes"),
        (b"\xff", "opcode b'\\xff' unknown"),
    ],
)
def test_metadata_that_asks_for_memory_is_refused(operations: bytes, complaint: str, tmp_path: Path) -> None:
    (tmp_path / ".metadata").write_bytes(b"\x80\x04" + operations + b".")
    with pytest.raises(InputError, match=re.escape(complaint)):
        dcp_arrays(tmp_path)


def test_metadata_damaged_anywhere_is_refused_or_read(tmp_path: Path) -> None:
    write_dcp(tmp_path, TENSORS)
    whole_content = (tmp_path / ".metadata").read_bytes()
    draw, refused = random.Random(0), 0
    for _ in range(400):
        content = bytearray(whole_content)
        content[draw.randrange(len(content))] = draw.randrange(256)
        (tmp_path / ".metadata").write_bytes(content[: draw.choice([len(content), draw.randrange(len(content))])])
        try:
            dcp_arrays(tmp_path)
        except InputError:
            refused += 1
    assert refused > 200
