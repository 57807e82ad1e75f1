"""Files packed in several ways, and damaged ones."""

import gzip
import io
import random

import pytest
import zstandard

from data_prep.corpus.decompress import decompressed
from stage.errors import InputError

CONTENT = b"".join(b"%d a line of text\n" % number for number in range(20_000))
PACKED = {
    ".gz": gzip.compress(CONTENT[:100], mtime=0) + gzip.compress(CONTENT[100:], mtime=0),
    ".zst": zstandard.compress(CONTENT[:100]) + zstandard.compress(CONTENT[100:]),
    "": CONTENT,
}


def unpacked(suffix: str, content: bytes, count: int = -1) -> bytes:
    with decompressed(f"x.json{suffix}", io.BytesIO(content)) as stream:  # type: ignore[arg-type]
        return stream.read(count)


@pytest.mark.parametrize("suffix", PACKED)
def test_members_are_read_one_after_the_other(suffix: str) -> None:
    assert unpacked(suffix, PACKED[suffix]) == CONTENT


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_any_cut_or_change_is_damage(suffix: str) -> None:
    draw = random.Random(1)
    packed = zstandard.ZstdCompressor(write_checksum=True).compress(CONTENT) if suffix == ".zst" else PACKED[".gz"]
    first_member = len(gzip.compress(CONTENT[:100], mtime=0))  # a whole file by itself
    for length in [0, *(draw.randrange(1, len(packed)) for _ in range(40))]:
        if length != first_member:
            with pytest.raises(InputError, match=rf"x.json{suffix}: truncated or damaged .*fetch it again"):
                unpacked(suffix, packed[:length])
        place = draw.randrange(30, len(packed))
        damaged = packed[:place] + bytes([packed[place] ^ 1 << draw.randrange(8)]) + packed[place + 1 :]
        try:
            assert unpacked(suffix, damaged) == CONTENT  # bits without meaning
        except InputError as error:
            assert "truncated or damaged" in str(error)


def test_a_window_of_gigabytes_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=30, enable_ldm=True)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    with pytest.raises(InputError, match="truncated or damaged zstd"):
        unpacked(".zst", packer.compress(CONTENT) + packer.flush())
