"""Archives of torch.save: the tensor is found without PyTorch, and damage is refused within bounds."""

import io
import pickle
import random
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

from foundation.file_formats.torch_archive import STORAGES, SavedTensor, archived_pickle, locate_tensor


def saved(content: object) -> bytes:
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


def located(content: bytes, before: bytes = b"before") -> SavedTensor:
    return locate_tensor(io.BytesIO(before + content + b"behind"), len(before), len(content))


def zipped(entries: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(f"archive/{name}", content)
    return file.getvalue()


def entries_of(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize("dtype", sorted({name for name, _ in STORAGES.values()}))
def test_every_dtype(dtype: str) -> None:
    tensor = torch.arange(12).reshape(3, 4).to(getattr(torch, dtype))
    content = saved(tensor)
    location = located(content)
    assert (location.shape, location.dtype) == ((3, 4), dtype)
    values = tensor.view(torch.uint8).numpy().tobytes()
    assert content[location.start : location.start + len(values)] == values


def test_parts_of_a_storage_and_parameters() -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    content = saved(whole[1:])
    location = located(content)
    found = np.frombuffer(content, "<f4", 8, location.start)
    assert (location.shape, found.tolist()) == ((2, 4), whole[1:].reshape(-1).tolist())
    assert located(saved(torch.nn.Parameter(whole))).shape == (3, 4)
    assert located(saved(torch.tensor(5))).shape == ()
    assert located(saved(torch.zeros(0, 7))).shape == (0, 7)
    assert located(saved(torch.zeros(1, 7).t())).shape == (7, 1)


TENSOR = saved(torch.arange(12.0).reshape(3, 4))
ENTRIES = entries_of(TENSOR)
PICKLE = ENTRIES["data.pkl"]
REFUSED = {
    "columns": (saved(torch.zeros(3, 4).t()), "whose values do not lie in order"),
    "a list": (saved([torch.zeros(3)]), "holds something else than a tensor"),
    "a class": (zipped({"data.pkl": pickle.dumps(Path())}), r"names pathlib.*which is not known here"),
    "another byte order": (zipped({**ENTRIES, "byteorder": b"big"}), "another order of bytes"),
    "no values": (zipped({"data.pkl": PICKLE}), "no data/0 in it"),
    "few values": (zipped({**ENTRIES, "data/0": bytes(40)}), "40 bytes of values for a tensor of 12 float32"),
    "no pickle": (zipped({"data/0": bytes(48)}), r"no data\.pkl in it"),
    "compressed": (zipped(ENTRIES, zipfile.ZIP_DEFLATED), "compressed, which torch.save never does"),
    "a large pickle": (zipped({"data.pkl": bytes(1 << 17)}), "131,072 bytes, more than 65,536"),
    "a large directory": (
        zipped({str(number).zfill(200): b"" for number in range(5000)}),
        "a directory of more than 1,048,576 bytes",
    ),
    "cut": (TENSOR[:-30], "not an archive of torch.save"),
    "nothing": (b"", "not an archive of torch.save"),
    "a storage that is a path": (
        zipped({**ENTRIES, "data.pkl": PICKLE.replace(b"X\x01\0\0\x000", b"X\x01\0\0\0/")}),
        "not read",
    ),
    "complex numbers": (saved(torch.zeros(3, dtype=torch.complex64)), "torch.ComplexFloatStorage, which is not known"),
}


@pytest.mark.parametrize(("content", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        located(content)


def test_a_directory_of_a_wrong_size_takes_no_memory() -> None:
    """Its end record says that the directory has 4 GB."""
    content = zipped(ENTRIES)
    end = content.rindex(b"PK\5\6")
    damaged = content[: end + 12] + struct.pack("<I", 0xFFFFFFF0) + content[end + 16 :]
    with pytest.raises(ValueError, match="not an archive"):
        located(damaged)


def test_damage_anywhere_is_refused_or_read() -> None:
    draw, refused = random.Random(1), 0
    for _ in range(400):
        content = bytearray(TENSOR)
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        try:
            location = located(bytes(content[: draw.choice([len(content), draw.randrange(len(content))])]))
            assert location.start + 48 <= len(content)
        except ValueError:
            refused += 1
    assert refused > 200


def test_a_pickle_of_plain_values() -> None:
    content = saved({"step": 4000})
    assert archived_pickle(io.BytesIO(content), len(content), 1000) == {"step": 4000}
    with pytest.raises(ValueError, match=r"data\.pkl has 21 bytes, more than 10"):
        archived_pickle(io.BytesIO(content), len(content), 10)
    damaged = content.replace(b"M\xa0\x0f", b"M\xa1\x0f")
    with pytest.raises(ValueError, match="its CRC-32 differs"):
        archived_pickle(io.BytesIO(damaged), len(damaged), 1000)
