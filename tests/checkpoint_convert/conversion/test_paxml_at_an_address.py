"""A checkpoint at an address gives the bytes that a copy of it gives, or nothing."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpoint_convert.commands.conversion_commands import sums_by_name
from checkpoint_convert.conversion.paxml_to_megatron import paxml_to_megatron
from checkpoint_convert.formats.source_files import RemoteFiles
from checkpoint_convert.formats.summed_output import Produced
from checksums.folder_sums import digest_folder
from foundation.errors import InputError
from foundation.file_formats.md5_list import format_list
from foundation.network.addresses import parse_address
from foundation.network.remote_folder import RemoteFolder
from foundation.outputs.digest import md5_file
from foundation.outputs.shards import Shard
from tests.checkpoint_convert.in_process import run
from tests.checkpoint_convert.tiny import GIB, tiny_values, write_paxml
from tests.foundation.network.faulty_server import FaultyServer

AXES = {"L": 1, "C": 3, "N": 1, "D": 5, "H": 5, "F": 20, "V": 10, "P": 4}
SCALE = "mdl_vars.params.lm.final_ln.scale/0"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint, and beside it what a conversion from the disk gives."""
    folder = tmp_path_factory.mktemp("made")
    write_paxml(folder / "run", tiny_values(AXES), AXES)
    paxml_to_megatron(folder / "run", folder / "expected", dtype="fp32", workers=1, memory_limit=GIB)
    return folder


@pytest.fixture
def server(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    shutil.copytree(made / "run", tmp_path / "served" / "run")
    with FaultyServer(tmp_path / "served") as started:
        yield started


def convert(
    server: FaultyServer,
    output: Path,
    shard: str = "",
    *,
    kind: str = "http",
    md5_list: Path | None = None,
    force: bool = False,
) -> Produced | None:
    s3, web = ("s3://ckpt/run", server.url), (f"{server.url}/ckpt/run?token=SECRET", None)
    address = parse_address(*(s3 if kind == "s3" else web))
    files = RemoteFiles(RemoteFolder(address), None if md5_list is None else sums_by_name(md5_list, address))
    return paxml_to_megatron(
        files,
        output,
        dtype="fp32",
        workers=2,
        memory_limit=GIB,
        md5_list=None if md5_list is None else md5_file(md5_list),
        shard=Shard(*map(int, shard.split("/"))) if shard else None,
        force=force,
    )


@pytest.mark.slow
def test_shards_and_the_join_give_the_bytes_of_a_copy(server: FaultyServer, made: Path, tmp_path: Path) -> None:
    for shard in ("0/2", "1/2"):
        assert convert(server, tmp_path / "out", shard, kind="s3") is not None
        assert not (tmp_path / "out").exists()
    read = {key: count for key, count in server.requests.items() if not key.endswith((".zarray", ".count/0", "step/0"))}
    joined = convert(server, tmp_path / "out", kind="s3")
    assert joined is not None
    assert joined.resumed_files == joined.files
    assert {key: server.requests[key] for key in read} == read  # the join reads no chunk again
    assert digest_folder(tmp_path / "out") == digest_folder(made / "expected")
    assert convert(server, tmp_path / "out", kind="s3") is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.manifest.json", "out.md5", "served"]


def test_chunks_that_change_between_shards_and_the_join(server: FaultyServer, tmp_path: Path) -> None:
    """The join once mixed both checkpoints, and its sums were those of the mixture."""
    convert(server, tmp_path / "out", "0/2")
    chunk = server.folder / "run" / SCALE
    chunk.write_bytes(chunk.read_bytes() + b"x")
    for shard in ("1/2", ""):
        with pytest.raises(InputError, match=r"begun for another output: the content of .* with --force, which begins"):
            convert(server, tmp_path / "out", shard)


def test_a_chunk_that_changes_while_it_is_converted(server: FaultyServer, tmp_path: Path) -> None:
    chunk = server.folder / "run" / SCALE

    def change(key: str, number: int) -> None:
        if key.endswith("final_ln.bias/0"):
            chunk.write_bytes(chunk.read_bytes() + b"more")

    server.fault = change
    with pytest.raises(InputError, match=r"changed since it was first asked for|an input changed meanwhile"):
        convert(server, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_published_sums_are_compared_as_it_is_read(server: FaultyServer, made: Path, tmp_path: Path) -> None:
    sums = {f"run/{name}": digest for name, digest in digest_folder(made / "run").items()}
    good, bad, other = (tmp_path / name for name in ("good.md5", "bad.md5", "other.md5"))
    good.write_text(format_list(sums))
    bad.write_text(format_list({**sums, f"run/{SCALE}": "0" * 32}))
    other.write_text(format_list({"a.json.gz": "0" * 32}))
    with pytest.raises(InputError, match=rf"{SCALE}: its MD5 is .*, in the list 0{{32}}"):
        convert(server, tmp_path / "out", md5_list=bad)
    with pytest.raises(InputError, match="expected the sums of a checkpoint's files"):
        convert(server, tmp_path / "out", md5_list=other)
    with pytest.raises(InputError, match=r"md5_list is \w{32}, not \w{32}"):  # what was read was compared otherwise
        convert(server, tmp_path / "out", md5_list=good)
    convert(server, tmp_path / "out", md5_list=good, force=True)
    assert digest_folder(tmp_path / "out") == digest_folder(made / "expected")
    assert "SECRET" not in (tmp_path / "out.manifest.json").read_text()


def test_what_is_missing_or_damaged_there_is_named(server: FaultyServer, tmp_path: Path) -> None:
    chunk = server.folder / "run" / SCALE
    chunk.write_bytes(b"damaged")
    with pytest.raises(InputError, match=r"/ckpt/run/mdl_vars.*scale: chunk 0 cannot be read"):
        convert(server, tmp_path / "a")
    chunk.unlink()
    with pytest.raises(InputError, match=r"/ckpt/run/mdl_vars.*: chunk 0 is missing"):
        convert(server, tmp_path / "b")
    shutil.rmtree(server.folder / "run")
    with pytest.raises(InputError, match="no PAXML checkpoint"):
        convert(server, tmp_path / "c")
    assert not any((tmp_path / name).exists() for name in "abc")


def test_a_server_without_versions_is_told_of(server: FaultyServer, made: Path, tmp_path: Path) -> None:
    server.tags = False
    words = ["paxml-to-megatron", "--output", tmp_path / "out", "--dtype", "fp32", "--input"]
    assert "tells neither ETags nor times" in run(*words, f"{server.url}/ckpt/run").stderr
    assert digest_folder(tmp_path / "out") == digest_folder(made / "expected")


def test_command_line(server: FaultyServer, tmp_path: Path) -> None:
    words = ["paxml-to-megatron", "--output", tmp_path / "out", "--dtype", "fp32", "--input"]
    lines = run(*words, f"{server.url}/ckpt/run", "--plan").stdout.splitlines()
    assert sum(line.endswith((".w", ".b", ".scale", ".bias", ".emb_var")) for line in lines) == 48
    run(*words, f"{server.url}/ckpt/run", "--bandwidth-limit", "fast").refused("--bandwidth-limit 'fast'")
    run(*words, "ftp://host/a").refused("expected a local path, gs://, s3://")


@pytest.mark.parametrize("kind", ["s3", "web"])
def test_stores_that_deny_what_does_not_exist(
    kind: str, server: FaultyServer, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.missing_status = 403
    convert(server, tmp_path / "out", kind=kind)
    assert digest_folder(tmp_path / "out") == digest_folder(made / "expected")
    assert capsys.readouterr().err.count("objects is denied, first ") == 1
    shutil.rmtree(server.folder / "run")
    with pytest.raises(InputError, match=r"tried 1 times .*check the address, the credentials"):
        convert(server, tmp_path / "other", kind=kind)
