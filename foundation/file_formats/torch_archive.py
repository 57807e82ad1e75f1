"""Read the archives that ``torch.save`` writes, without PyTorch and without running any code in them.

Such an archive is a zip file without compression. ``NAME/data.pkl`` is a pickle of the saved object, and the values of
each tensor lie in ``NAME/data/NUMBER``.
"""

import math
import os
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from foundation.errors import first_line
from foundation.file_formats.inert_pickle import OUTSIDE_VALUE, PickledName, PickledObject, load_pickle

PICKLE = "data.pkl"
MOST_DIRECTORY_BYTES = 1 << 20
"""Most bytes of the zip file's directory, which has about 100 for each tensor."""
LARGEST_TENSOR_PICKLE = 1 << 16
"""Most bytes of the pickle of a single tensor, which takes about 200."""
LOCAL_HEADER = struct.Struct("<4s22xHH")
"""Signature of an entry's own header, and the lengths of its name and its extra field; the content follows them."""
STORAGES = {
    "torch.BoolStorage": ("bool", 1),
    "torch.ByteStorage": ("uint8", 1),
    "torch.CharStorage": ("int8", 1),
    "torch.ShortStorage": ("int16", 2),
    "torch.IntStorage": ("int32", 4),
    "torch.LongStorage": ("int64", 8),
    "torch.HalfStorage": ("float16", 2),
    "torch.BFloat16Storage": ("bfloat16", 2),
    "torch.FloatStorage": ("float32", 4),
    "torch.DoubleStorage": ("float64", 8),
}
"""Name of the dtype, and bytes of an item, by the class of a tensor's storage."""
MOST_AXES, LARGEST_SIZE = 64, (1 << 63) - 1
REBUILT = ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter")
TENSOR_NAMES = {*STORAGES, *REBUILT, "collections.OrderedDict"}


@dataclass(frozen=True)
class SavedTensor:
    """A tensor in an archive, whose values lie in C order."""

    shape: tuple[int, ...]
    dtype: str
    start: int
    """First byte of the values, counted from the archive's first byte."""


def archived_pickle(file: BinaryIO, length: int, most: int) -> Any:
    """Return the object of an archive that is the whole of ``file``; it may hold plain values only.

    ``most``: most bytes of its pickle. Raises ValueError if the archive is damaged or its pickle names a class.
    """
    archive = _Archive(file, 0, length)
    content = archive.read(PICKLE, most)
    if zlib.crc32(content) != archive.crc32(PICKLE):
        raise ValueError(f"{PICKLE} is damaged: its CRC-32 differs")
    return load_pickle(content)


def locate_tensor(file: BinaryIO, offset: int, length: int) -> SavedTensor:
    """Return the tensor in the archive of ``length`` bytes at byte ``offset`` of ``file``.

    Raises ValueError if the archive is damaged, or holds anything but one contiguous tensor in this machine's byte
    order.
    """
    archive = _Archive(file, offset, length)
    content = load_pickle(archive.read(PICKLE, LARGEST_TENSOR_PICKLE), TENSOR_NAMES.__contains__)
    key, dtype, itemsize, first_item, shape = _described(content)
    if archive.has("byteorder") and archive.read("byteorder", 10) != b"little":
        raise ValueError("written by a machine with another order of bytes")
    start, size = archive.content(f"data/{key}")
    if (first_item + math.prod(shape)) * itemsize > size:
        raise ValueError(f"{size:,} bytes of values for a tensor of {math.prod(shape):,} {dtype}")
    return SavedTensor(shape, dtype, start + first_item * itemsize)


def _described(content: Any) -> tuple[str, str, int, int, tuple[int, ...]]:
    """Return a tensor's key, dtype, bytes of an item, first item in its storage, and shape."""
    if _is_object(content, REBUILT[1]) and content.arguments:
        content = content.arguments[0]
    if not _is_object(content, REBUILT[0]) or len(content.arguments) < 4:
        raise ValueError("the archive holds something else than a tensor")
    outside, first_item, shape, strides = content.arguments[:4]
    storage = outside.arguments[0] if _is_object(outside, OUTSIDE_VALUE) else None
    if type(storage) is not tuple or len(storage) != 5 or type(storage[1]) is not PickledName:
        raise ValueError("a tensor without a storage")
    _, kind, key, _, _ = storage
    if kind.name not in STORAGES or type(key) is not str or not (key.isascii() and key.isdigit()):
        raise ValueError("a tensor whose storage is not read here")
    if not all(map(_are_sizes, ((first_item,), shape, strides))):
        raise ValueError("a tensor whose sizes are not numbers")
    if not _is_in_order(shape, strides):
        raise ValueError("a tensor whose values do not lie in order")
    return key, *STORAGES[kind.name], first_item, shape


def _is_object(value: Any, name: str) -> bool:
    return type(value) is PickledObject and value.name == name


def _are_sizes(value: Any) -> bool:
    is_short = type(value) is tuple and len(value) <= MOST_AXES
    return is_short and all(type(size) is int and 0 <= size <= LARGEST_SIZE for size in value)


def _is_in_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether the values lie in C order; the stride of an axis of one item has no effect."""
    expected = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    axes_in_order = (size == 1 or stride == step for size, stride, step in zip(shape, strides, expected, strict=True))
    return len(shape) == len(strides) and (0 in shape or all(axes_in_order))


ENCRYPTED = 1
"""The bit in an entry's flags."""
DAMAGE = (zipfile.BadZipFile, struct.error, NotImplementedError, ArithmeticError, LookupError, EOFError, ValueError)
"""Errors that ``zipfile`` raises for a damaged directory."""


class _Archive:
    """The entries of a zip file that is a part of a file."""

    def __init__(self, file: BinaryIO, offset: int, length: int) -> None:
        self._part = _FilePart(file, offset, length)
        try:
            self._part.may_read = MOST_DIRECTORY_BYTES
            entries = zipfile.ZipFile(cast(BinaryIO, self._part)).infolist()
        except DAMAGE as error:
            raise ValueError(f"not an archive of torch.save ({first_line(error)})") from error
        self._entries = {entry.filename.partition("/")[2]: entry for entry in entries}

    def has(self, name: str) -> bool:
        return name in self._entries

    def crc32(self, name: str) -> int:
        return self._entries[name].CRC

    def content(self, name: str) -> tuple[int, int]:
        """Return the first byte of an entry's content in the archive, and its size."""
        if (entry := self._entries.get(name)) is None:
            raise ValueError(f"not an archive of torch.save (no {name} in it)")
        if entry.compress_type or entry.flag_bits & ENCRYPTED or entry.compress_size != entry.file_size:
            raise ValueError(f"{name} is compressed, which torch.save never does")
        self._part.may_read = LOCAL_HEADER.size
        self._part.seek(max(entry.header_offset, 0))
        header = self._part.read(LOCAL_HEADER.size)
        if entry.header_offset < 0 or len(header) != LOCAL_HEADER.size or not header.startswith(b"PK\3\4"):
            raise ValueError(f"{name} has no header")
        _, name_bytes, extra_bytes = LOCAL_HEADER.unpack(header)
        start = entry.header_offset + LOCAL_HEADER.size + name_bytes + extra_bytes
        if start + entry.file_size > self._part.length:
            raise ValueError(f"{name} ends behind the end of the archive")
        return start, entry.file_size

    def read(self, name: str, most: int) -> bytes:
        start, size = self.content(name)
        if size > most:
            raise ValueError(f"{name} has {size:,} bytes, more than {most:,}")
        self._part.may_read = size
        self._part.seek(start)
        return self._part.read(size)


class _FilePart:
    """A part of a file as a file of its own. No more than ``may_read`` bytes are read."""

    def __init__(self, file: BinaryIO, offset: int, length: int) -> None:
        self._file, self._offset, self.length = file, offset, length
        self._position = 0
        self.may_read = 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.length}[whence]
        if self._position < 0:
            raise OSError("before the first byte")
        return self._position

    def read(self, size: int = -1) -> bytes:
        size = max(0, self.length - self._position) if size < 0 else min(size, self.length - self._position)
        if size > self.may_read:
            raise ValueError(f"a directory of more than {MOST_DIRECTORY_BYTES:,} bytes")
        self._file.seek(self._offset + self._position)
        content = self._file.read(max(size, 0))
        self._position += len(content)
        self.may_read -= len(content)
        return content
