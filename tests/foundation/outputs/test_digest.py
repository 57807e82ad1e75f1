"""MD5 digests of files and texts."""

import hashlib
from pathlib import Path

from foundation.outputs.digest import BLOCK_BYTES, SAMPLE_BYTES, md5_file, md5_samples, md5_text


def test_digests_are_md5_and_progress_is_told(tmp_path: Path) -> None:
    contents = [b"", b"x", bytes(range(256)) * (BLOCK_BYTES // 128) + b"end"]
    paths = [tmp_path / str(number) for number in range(3)]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    told: list[float] = []
    expected = [hashlib.md5(content).hexdigest() for content in contents]
    assert [md5_file(path, told.append) for path in paths] == expected
    assert told == [1, BLOCK_BYTES, BLOCK_BYTES, 3]


def test_texts_are_hashed_in_utf8() -> None:
    assert md5_text("naïve") == hashlib.md5(b"na\xc3\xafve").hexdigest()
    assert md5_text("\udcff") == hashlib.md5(b"\xff").hexdigest()  # a byte of a file name that is not UTF-8


def test_samples_are_of_all_of_a_small_file_and_of_places_of_a_large_one(tmp_path: Path) -> None:
    def sampled(content: bytes | bytearray) -> str:
        (tmp_path / "file").write_bytes(content)
        return md5_samples(tmp_path / "file", samples=3)

    small, large = bytearray(3 * SAMPLE_BYTES), bytearray(8 * SAMPLE_BYTES)
    whole, some = sampled(small), sampled(large)
    small[-SAMPLE_BYTES - 1] = large[-1] = 1
    assert sampled(small) != whole
    assert sampled(large) != some
    large[-1], large[2 * SAMPLE_BYTES] = 0, 1
    assert sampled(large) == some  # not looked at
    assert len({sampled(bytes(size)) for size in (0, 1, 8 * SAMPLE_BYTES, 8 * SAMPLE_BYTES + 1)} | {some}) == 4
