"""Inputs by path and address: the same result from either, for all commands that read text."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from data_prep.commands.text_commands import TrainTokenizerCommand, ValidationSubsetCommand
from data_prep.corpus.named_inputs import as_input, described_inputs, local_of, parse_inputs, record_of_input
from stage.errors import InputError
from stage.manifest import Record, read_manifest
from stage.remote.remote_file import RemoteFile
from tests.data_prep.shards import write_shard
from tests.stage.remote.faulty_server import FaultyServer


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    (tmp_path / "in").mkdir()
    return [write_shard(tmp_path / "in" / f"{seed}.json.gz", 60, seed=seed) for seed in (1, 2)]


@pytest.fixture
def server(shards: list[Path]) -> Iterator[FaultyServer]:
    with FaultyServer(shards[0].parent) as made:
        yield made


def test_what_was_named(server: FaultyServer, shards: list[Path]) -> None:
    texts = [str(shards[0]), f"{server.url}/ckpt/{shards[1].name}?sig=SECRET"]
    inputs = parse_inputs(texts, endpoint_url=None, bandwidth_limit="8MB", at_once=4)
    assert local_of(inputs) == [shards[0]] == [as_input(inputs[0])]
    assert isinstance(inputs[1], RemoteFile)
    assert inputs[1].bytes_per_s == 8e6
    assert described_inputs(inputs, [0])[1].facts.version is None  # type: ignore[union-attr]
    record = as_input(described_inputs(inputs)[1])
    assert isinstance(record, Record)
    assert (record.bytes, record.name) == (shards[1].stat().st_size, f"{server.url}/ckpt/{shards[1].name}")
    assert record_of_input(shards[0], "0" * 32).md5 == "0" * 32
    with pytest.raises(InputError, match="are for inputs with an address, of which there is none"):
        parse_inputs(texts[:1], endpoint_url="http://host", bandwidth_limit=None)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train-tokenizer", "validation-subset"])
def test_from_addresses_as_from_disk(
    name: str, server: FaultyServer, shards: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def made(inputs: list[str], output: Path) -> bytes:
        if name == "train-tokenizer":
            TrainTokenizerCommand(tuple(inputs), output, vocab_size=400).run()
        else:
            ValidationSubsetCommand(tuple(inputs), output, count=7).run()
        return output.read_bytes()

    addresses = [f"{server.url}/ckpt/{path.name}?sig=SECRET" for path in shards]
    server.fault = lambda _, number: "truncated" if number == 2 else None
    assert made(addresses, tmp_path / "there") == made(list(map(str, shards)), tmp_path / "here")
    capsys.readouterr()
    made(addresses, tmp_path / "there")
    assert "already made from these inputs" in capsys.readouterr().out
    manifest = read_manifest(tmp_path / "there")
    assert manifest is not None
    assert "SECRET" not in str(manifest)
    shards[0].write_bytes(shards[1].read_bytes())
    with pytest.raises(InputError, match="was made otherwise; choose another --output or pass --force"):
        made(addresses, tmp_path / "there")
