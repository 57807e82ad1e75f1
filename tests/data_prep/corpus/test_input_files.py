"""Input files, local or at an address: what is refused, what is known of them, and how they are unpacked."""

import gzip
import io
import random
from pathlib import Path

import pytest
import zstandard

from data_prep.corpus.c4 import documents_of
from data_prep.corpus.input_files import (
    Location,
    decompressed,
    describe_inputs,
    local_paths,
    parse_inputs,
    require_files,
)
from foundation.errors import InputError
from foundation.outputs.digest import md5_file
from tests.data_prep.shards import write_shard
from tests.foundation.network.faulty_server import FaultyServer


def test_files_and_addresses_give_the_same_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shard = write_shard(tmp_path / "a.json.gz", 20, seed=1)
    with FaultyServer(tmp_path) as server:
        places = parse_inputs([str(shard), f"{server.url.replace('//', '//me:SECRET@')}/ckpt/a.json.gz?sig=SECRET"])
        files = describe_inputs(places, bandwidth_limit="8MB", at_once=4)
        read = []
        for file in files:
            with file.open() as source:
                read.append(source.read())
                assert source.md5.hexdigest() == md5_file(shard)
    assert read == [shard.read_bytes()] * 2
    assert local_paths(files) == [shard]
    assert [file.source.bytes for file in files] == [shard.stat().st_size] * 2
    assert [file.bytes_per_s for file in files] == [None, 8e6]
    assert files[1].source.name == str(files[1]) == f"{server.url}/ckpt/a.json.gz"
    assert files[1].source.identity == f'etag:"{md5_file(shard)}"'
    assert "SECRET" not in capsys.readouterr().err


def test_a_file_that_changes_is_noticed(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "a.json.gz", 20, seed=1)
    with FaultyServer(tmp_path) as server:
        local, remote = describe_inputs(parse_inputs([str(shard), f"{server.url}/ckpt/a.json.gz"]))
        assert local.source_now() == local.source
        write_shard(shard, 20, seed=2)
        assert local.source_now() != local.source
        with pytest.raises(InputError, match=r"a.json.gz: changed since it was first asked for"):
            list(documents_of(remote))


def test_a_server_that_cannot_tell_contents_apart_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_shard(tmp_path / "a.json.gz", 1, seed=1)
    with FaultyServer(tmp_path, tags=False) as server:
        describe_inputs(parse_inputs([f"{server.url}/ckpt/a.json.gz"]))
    assert "a.json.gz: sends neither ETag nor time of modification" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "endpoint_url", "limit", "complaint"),
    [
        ("s3://bucket/a?b=SECRET", None, None, "s3://….*expected a local path"),
        ("README.md", "http://host", None, "--endpoint-url is for inputs with an address, of which there is none"),
        ("README.md", None, "1MB", "--bandwidth-limit is for inputs with an address, of which there is none"),
    ],
)
def test_bad_usage(text: str, endpoint_url: str | None, limit: str | None, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as error:
        describe_inputs(parse_inputs([text], endpoint_url), bandwidth_limit=limit)
    assert "SECRET" not in str(error.value)


def test_inputs_that_are_no_files(tmp_path: Path) -> None:
    for path, reason in (
        (tmp_path / "none", "none: no such file"),
        (tmp_path, "a folder; expected a file|not a regular file"),
        (Path("/dev/null"), "not a regular file"),
        (Path("a\0b"), "no such file"),
    ):
        places: list[Location] = [path]
        with pytest.raises(InputError, match=reason):
            describe_inputs(places)
        with pytest.raises(InputError, match=reason):
            require_files([path])


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
