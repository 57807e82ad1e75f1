"""Where text comes from: files packed in several ways, and what is wrong with them."""

import gzip
import io
import random
from pathlib import Path

import pytest
import zstandard

from data_prep.corpus.input_files import HashedFile, decompressed, display_name, require_files
from stage.digest import md5_file
from stage.errors import InputError

CONTENT = b"".join(b"%d a line of text\n" % number for number in range(20_000))
PACKED = {
    ".gz": gzip.compress(CONTENT[:100], mtime=0) + gzip.compress(CONTENT[100:], mtime=0),
    ".zst": zstandard.compress(CONTENT[:100]) + zstandard.compress(CONTENT[100:]),
    "": CONTENT,
}


def read(path: Path) -> bytes:
    source = HashedFile(path)
    with decompressed(path, source) as stream:
        found = stream.read()
    assert source.md5.hexdigest() == md5_file(path)
    source.close()
    return found


@pytest.mark.parametrize("suffix", PACKED)
def test_members_are_read_one_after_the_other(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.json{suffix}"
    path.write_bytes(PACKED[suffix])
    assert read(path) == CONTENT


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_any_cut_or_change_is_damage(suffix: str, tmp_path: Path) -> None:
    draw = random.Random(1)
    path = tmp_path / f"x.json{suffix}"
    packed = zstandard.ZstdCompressor(write_checksum=True).compress(CONTENT) if suffix == ".zst" else PACKED[".gz"]
    for _ in range(40):
        damaged = bytearray(packed[: draw.randrange(1, len(packed))])
        path.write_bytes(damaged)
        if len(damaged) != len(gzip.compress(CONTENT[:100], mtime=0)):  # the first member is a whole file
            with pytest.raises(InputError, match="truncated or damaged"):
                read(path)
        place = draw.randrange(30, len(packed))
        path.write_bytes(packed[:place] + bytes([packed[place] ^ 1 << draw.randrange(8)]) + packed[place + 1 :])
        try:
            assert read(path) == CONTENT  # bits that mean nothing
        except InputError as error:
            assert "truncated or damaged" in str(error)


def test_a_window_of_gigabytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json.zst"
    parameters = zstandard.ZstdCompressionParameters(window_log=30, enable_ldm=True)
    packed = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    path.write_bytes(packed.compress(CONTENT) + packed.flush())
    with pytest.raises(InputError, match="truncated or damaged zstd"):
        read(path)


def test_a_bomb_is_unpacked_piece_by_piece(tmp_path: Path) -> None:
    """A gigabyte of zeros in 30 kB, of which the first megabyte is asked for."""
    path = tmp_path / "x.json.zst"
    packed = zstandard.ZstdCompressor(level=1).compressobj()
    path.write_bytes(b"".join(packed.compress(bytes(1 << 24)) for _ in range(64)) + packed.flush())
    assert path.stat().st_size < 200_000
    source = HashedFile(path)
    with decompressed(path, source) as stream:
        assert isinstance(stream, io.BufferedReader)
        assert stream.read(1 << 20) == bytes(1 << 20)
    assert source.position < 1 << 19
    source.close()


def test_files_that_are_none(tmp_path: Path) -> None:
    for path, reason in (
        (tmp_path / "none", "none: no such file"),
        (tmp_path, "not a regular file"),
        (Path("/dev/null"), "not a regular file"),
        (tmp_path / ("a" * 300), "File name too long"),
        (Path("a\0b"), "null"),
    ):
        with pytest.raises(InputError, match=reason):
            require_files([path])


def test_names_that_are_no_text() -> None:
    assert display_name("a/\udcff\u00e4") == "a/\\xff\u00e4"
