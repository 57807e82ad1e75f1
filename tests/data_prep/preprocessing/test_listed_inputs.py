"""Shards from where they lie: the same bytes as from disk, whatever their servers do, or an error."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from data_prep.commands.text_commands import PreprocessCommand
from data_prep.corpus.input_files import InputFile, require_files
from data_prep.preprocessing.listed_inputs import listed_sums
from data_prep.preprocessing.preprocess import Reading, preprocess
from stage.digest import md5_file
from stage.errors import InputError
from stage.manifest import manifest_path, read_manifest
from stage.remote import web_file
from stage.remote.object_address import parse_address
from stage.remote.remote_file import RemoteFile
from stage.task_shard import TaskShard
from tests.data_prep.shards import DOCUMENTS, Sums, sums, write_shard
from tests.stage.remote.faulty_server import FaultyServer
from tests.support import command


@pytest.fixture
def server(shards: list[Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    """Serves the shards. Pieces are small, and no try waits for the next."""
    monkeypatch.setattr("stage.remote.patience.FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(web_file, "PIECE_BYTES", 1 << 12)
    with FaultyServer(shards[0].parent) as server:
        yield server


def at(server: FaultyServer, shards: list[Path]) -> list[RemoteFile]:
    base = server.url.replace("http://", "http://name:SECRET@")
    return [RemoteFile(parse_address(f"{base}/ckpt/{path.name}?sig=SIGNED")) for path in shards]


def every_other(key: str, number: int) -> str | None:
    """The first asks for its size, the last whether it is still the same."""
    return ("truncated", None, "dropped", None)[number % 4]


@pytest.mark.parametrize("workers", [1, 3, pytest.param(8, marks=pytest.mark.slow)])
def test_same_bytes_as_from_disk(
    workers: int,
    shards: list[Path],
    tokenizer: Path,
    expected: Sums,
    server: FaultyServer,
    small_blocks: None,
    tmp_path: Path,
) -> None:
    server.fault = every_other
    result = preprocess(at(server, shards), tokenizer, tmp_path / "x", workers=workers)
    assert result is not None
    assert result.documents == DOCUMENTS * len(shards)
    assert sums(tmp_path / "x") == expected
    manifest = read_manifest(tmp_path / "x")
    assert manifest is not None
    for record, path in zip(manifest.inputs, shards, strict=False):
        assert record.name == f"{server.url}/ckpt/{path.name}"
        assert (record.bytes, record.md5) == (path.stat().st_size, md5_file(path))
        assert record.version == f'"{md5_file(path)}"'  # as this server tags
    written = manifest_path(tmp_path / "x").read_text()
    assert "SECRET" not in written
    assert "SIGNED" not in written


def test_made_once_while_the_server_says_that_nothing_changed(
    shards: list[Path], tokenizer: Path, server: FaultyServer, tmp_path: Path
) -> None:
    copies = [tmp_path / path.name for path in shards[:2]]
    for copy, path in zip(copies, shards, strict=False):
        copy.write_bytes(path.read_bytes())
    server.folder = tmp_path
    assert preprocess(at(server, copies), tokenizer, tmp_path / "x", workers=1) is not None
    sent = server.bytes_sent
    assert preprocess(at(server, copies), tokenizer, tmp_path / "x", workers=1) is None
    assert server.bytes_sent - sent <= len(copies)  # a byte each, to ask
    assert preprocess(copies, tokenizer, tmp_path / "x", workers=1) is None  # downloaded by now: the same contents
    copies[1].write_bytes(shards[2].read_bytes())
    with pytest.raises(InputError, match="made from other inputs or options"):
        preprocess(at(server, copies), tokenizer, tmp_path / "x", workers=1)


def test_finished_parts_stay_and_a_task_reads_its_share_only(
    shards: list[Path], tokenizer: Path, expected: Sums, server: FaultyServer, tmp_path: Path
) -> None:
    preprocess(at(server, shards), tokenizer, tmp_path / "x", workers=1, shard=TaskShard(1, 2))
    assert server.requests.keys() == {shards[1].name, shards[3].name}
    sent = server.bytes_sent
    preprocess(at(server, shards), tokenizer, tmp_path / "x", workers=2)
    rest = sum(shards[number].stat().st_size for number in (0, 2, 4))
    assert rest <= server.bytes_sent - sent <= rest + 3 * len(shards)
    assert sums(tmp_path / "x") == expected


@pytest.mark.parametrize("tags", [True, False])
def test_parts_of_what_has_changed_since_are_made_again(
    tags: bool, shards: list[Path], tokenizer: Path, server: FaultyServer, tmp_path: Path
) -> None:
    """Without ETags nobody knows, so they always are."""
    server.folder, server.tags = tmp_path, tags
    (tmp_path / "a.json.gz").write_bytes(shards[0].read_bytes())
    remote = at(server, [tmp_path / "a.json.gz"])
    preprocess(remote, tokenizer, tmp_path / "x", workers=1, shard=TaskShard(0, 1))
    (tmp_path / "a.json.gz").write_bytes(shards[1].read_bytes())
    preprocess(remote, tokenizer, tmp_path / "x", workers=1)
    preprocess(shards[1:2], tokenizer, tmp_path / "y", workers=1)
    assert sums(tmp_path / "x") == sums(tmp_path / "y")


def test_nothing_is_published_of_a_file_that_changes_or_breaks_for_good(
    shards: list[Path], tokenizer: Path, server: FaultyServer, tmp_path: Path
) -> None:
    server.folder = tmp_path

    def change(key: str, number: int) -> str | None:
        if number == 3:
            (tmp_path / "a.json.gz").write_bytes(shards[1].read_bytes())
        return "truncated" if number == 2 else None

    for fault, complaint in (
        (change, "a.json.gz: changed while it was read"),
        (lambda key, number: "unavailable", "cannot be read in 6 tries .status 503"),
        (lambda key, number: "denied", "cannot be read .status 403"),
    ):
        (tmp_path / "a.json.gz").write_bytes(shards[0].read_bytes())
        server.requests.clear()
        server.fault = fault
        with pytest.raises(InputError, match=complaint) as error:
            preprocess(at(server, [tmp_path / "a.json.gz"]), tokenizer, tmp_path / "x", workers=1)
        assert "SECRET" not in str(error.value)
        assert "SIGNED" not in str(error.value)
        assert [path.name for path in tmp_path.iterdir()] == ["a.json.gz"]


def test_bad_lines_are_named_by_address(tokenizer: Path, server: FaultyServer, tmp_path: Path) -> None:
    server.folder = tmp_path
    (tmp_path / "a.txt").write_bytes(b"one tree\n\xff\nmany trees\n")
    remote = at(server, [tmp_path / "a.txt"])
    with pytest.raises(InputError, match=rf"^{server.url}/ckpt/a.txt:2: not UTF-8"):
        preprocess(remote, tokenizer, tmp_path / "x", workers=1)
    preprocess(remote, tokenizer, tmp_path / "x", workers=1, reading=Reading(on_bad_line="skip"))
    assert (tmp_path / "x.skipped.txt").read_text().startswith(f"{server.url}/ckpt/a.txt:2: not UTF-8")


def test_published_sums_are_compared(
    shards: list[Path], tokenizer: Path, expected: Sums, server: FaultyServer, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good.md5", tmp_path / "bad.md5"
    good.write_text("".join(f"{md5_file(path)}  en/x/{path.name}\n{md5_file(path)}  {path.name}\n" for path in shards))
    bad.write_text(good.read_text().replace(md5_file(shards[3]), "0" * 32))
    for inputs in (shards, at(server, shards)):
        with pytest.raises(InputError, match=rf"{shards[3].name}: MD5 .*, --md5-list has 0{{32}}; nothing was publish"):
            preprocess(inputs, tokenizer, tmp_path / "x", workers=2, md5_list=bad)
        assert not manifest_path(tmp_path / "x").exists()
    preprocess(shards, tokenizer, tmp_path / "x", workers=2, md5_list=good)
    assert sums(tmp_path / "x") == expected


def test_a_sum_is_found_by_the_longest_end_that_is_listed(tmp_path: Path) -> None:
    listing = tmp_path / "list"
    listing.write_text(f"{'1' * 32}  a.gz\n{'2' * 32}  en/a.gz\n")
    inputs: list[InputFile] = [
        Path("/data/en/a.gz"),
        Path("de/a.gz"),
        RemoteFile(parse_address("s3://bucket/c4/en/a.gz")),
    ]
    assert list(listed_sums(listing, inputs).values()) == ["2" * 32, "1" * 32, "2" * 32]
    for missing in (Path("b.gz"), Path("xa.gz"), Path("-")):
        with pytest.raises(InputError, match=f"has no sum of {missing}; leave the option out, or the file"):
            listed_sums(listing, [missing])


@pytest.mark.slow
def test_by_command(
    shards: list[Path],
    tokenizer: Path,
    expected: Sums,
    server: FaultyServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From a bucket and over the web; no secret of either is told."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    addresses = [f"s3://ckpt/{path.name}" for path in shards[:3]]
    web = server.url.replace("http://", "http://name:SECRET@")
    addresses += [f"{web}/ckpt/{path.name}?sig=SECRET" for path in shards[3:]]
    words = ["preprocess", "--input", *addresses, "--tokenizer", tokenizer, "--output-prefix", tmp_path / "x"]
    more = ["--endpoint-url", server.url, "--bandwidth-limit", "1GB", "--workers", 2, "--json"]
    done = command("data_prep", *words, *more)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["documents"] == DOCUMENTS * len(shards)
    assert sums(tmp_path / "x") == expected
    assert "SECRET" not in done.stderr + manifest_path(tmp_path / "x").read_text()


@pytest.mark.parametrize(
    ("address", "options", "complaint"),
    [
        ("ftp://host/a.json.gz", {}, "expected something local, gs://, s3://"),
        ("s3://bucket/a?b=SECRET", {}, "s3://bucket….*nothing besides"),
        ("a.json", {"bandwidth_limit": "1MB"}, "--bandwidth-limit are for inputs with an address"),
        ("https://host/a.json", {"bandwidth_limit": "fast"}, "--bandwidth-limit"),
        ("s3://bucket/a.json", {"endpoint_url": "host:80"}, "--endpoint-url: expected http"),
    ],
)
def test_bad_usage(address: str, options: dict[str, str], complaint: str, tokenizer: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=complaint) as error:
        PreprocessCommand((address,), tokenizer, tmp_path / "x", **options).run()  # type: ignore[arg-type]
    assert "SECRET" not in str(error.value)


def test_an_address_is_not_taken_for_a_file_elsewhere() -> None:
    with pytest.raises(InputError, match="only text is read from an address; download it first"):
        require_files([Path("s3://bucket/a.json.gz")])


def test_shards_of_the_synthetic_kind_differ(tmp_path: Path) -> None:
    """Else the tests above could not tell one from another."""
    first, second = (write_shard(tmp_path / str(seed), 3, seed=seed).read_bytes() for seed in (1, 2))
    assert first != second
