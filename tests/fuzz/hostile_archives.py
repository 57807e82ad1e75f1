"""Zip archives that lie about themselves, as ``torch.save`` would never write them."""

import io
import random
import struct
import zipfile
from collections.abc import Mapping

NAMES = ("data.pkl", "data/0", "byteorder", "version", "../outside", "/outside", "data.pkl", "\0", "a" * 300, "")
SIZES = (0, 1, 41, 0xFFFF, 0xFFFFFFFE, 0xFFFFFFFF)


def zip_of(entries: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """An archive with these entries, in a folder."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(f"archive/{name}", content)
    return file.getvalue()


def entries_of(content: bytes) -> dict[str, bytes]:
    """The entries of an archive, without the folder in which they lie."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def hostile_archive(honest: bytes, draw: random.Random) -> bytes:
    """``honest`` with a damaged directory, with other entries, as a bomb, or cut."""
    kind = draw.choice(("number", "number", "entries", "bomb", "many", "cut", "twice", "bytes"))
    if kind == "number":
        return _with_another_number(honest, draw)
    if kind == "entries":
        return zip_of({**entries_of(honest), draw.choice(NAMES): draw.randbytes(draw.randrange(200))})
    if kind == "bomb":
        return zip_of({**entries_of(honest), draw.choice(("data.pkl", "data/0")): bytes(1 << 26)}, zipfile.ZIP_DEFLATED)
    if kind == "many":
        return zip_of({f"{number:04x}" * draw.choice((1, 40)): b"" for number in range(draw.choice((500, 8000)))})
    if kind == "cut":
        return honest[: draw.randrange(len(honest))]
    if kind == "twice":
        return honest[draw.randrange(len(honest)) :] + honest
    damaged = bytearray(honest)
    for _ in range(draw.randrange(1, 20)):
        damaged[draw.randrange(len(damaged))] = draw.randrange(256)
    return bytes(damaged)


def _with_another_number(honest: bytes, draw: random.Random) -> bytes:
    """Replace a number of two, four or eight bytes in a header, in the directory or at its end."""
    damaged = bytearray(honest)
    signature = draw.choice((b"PK\1\2", b"PK\3\4", b"PK\5\6", b"PK\6\6", b"PK\6\7"))
    starts = [start for start in range(len(honest)) if honest.startswith(signature, start)]
    if starts:
        form, start = draw.choice(("<H", "<I", "<Q")), draw.choice(starts) + draw.randrange(4, 46)
        value = draw.choice(SIZES) if draw.random() < 0.7 else draw.randrange(1 << 16)
        number = struct.pack(form, value & (0xFFFF if form == "<H" else (1 << 64) - 1))
        damaged[start : start + len(number)] = number
    return bytes(damaged[: len(honest)])
