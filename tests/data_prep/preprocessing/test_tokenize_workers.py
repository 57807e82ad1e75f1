"""Workers: inputs from addresses, a worker that is killed, a command that is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from data_prep.preprocessing.preprocess import preprocess
from data_prep.preprocessing.token_piece import PieceMaker
from stage.errors import InputError
from stage.outputs.manifest import manifest_path
from tests.data_prep.shards import DOCUMENTS, Sums, sums, write_shard
from tests.stage.faulty_server import FaultyServer
from tests.support import REPOSITORY, assert_refused, forked_command


@pytest.mark.slow
def test_from_addresses_as_from_disk(shards: list[Path], tokenizer: Path, expected: Sums, tmp_path: Path) -> None:
    """Whatever the server does; no secret is told."""
    faults = {3: "truncated", 4: "unavailable"}
    with FaultyServer(shards[0].parent, fault=lambda key, number: faults.get(number)) as server:
        base = server.url.replace("http://", "http://name:SECRET@")
        addresses = [f"{base}/ckpt/{path.name}?sig=SECRET" for path in shards[1:]]
        words = ["--input", shards[0], *addresses, "--tokenizer", tokenizer, "--output-prefix", tmp_path / "x"]
        done = forked_command("data_prep", "preprocess", *words, "--workers", 3, "--json")
        assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["documents"] == DOCUMENTS * len(shards)
    assert sums(tmp_path / "x") == expected
    assert "SECRET" not in done.stderr + manifest_path(tmp_path / "x").read_text()


@pytest.mark.slow
def test_a_file_that_its_server_replaces_is_not_mixed(shards: list[Path], tokenizer: Path, tmp_path: Path) -> None:
    shard = tmp_path / "in" / "a.json.gz"
    shard.parent.mkdir()
    shard.write_bytes(shards[0].read_bytes())

    def change(key: str, number: int) -> str | None:
        if number == 1:  # HEAD has asked what there is
            write_shard(shard, DOCUMENTS, seed=9)
        return None

    with FaultyServer(shard.parent, fault=change) as server:
        words = ["--input", f"{server.url}/ckpt/a.json.gz", "--tokenizer", tokenizer, "--output-prefix", tmp_path / "x"]
        refused = forked_command("data_prep", "preprocess", *words, "--workers", 1)
        assert_refused(refused, "a.json.gz: changed since it was first asked for")
        assert [path.name for path in tmp_path.iterdir()] == ["in"]
        assert forked_command("data_prep", "preprocess", *words, "--workers", 1).returncode == 0
    preprocess([shard], tokenizer, tmp_path / "y", workers=1)
    assert sums(tmp_path / "x") == sums(tmp_path / "y")


def test_a_worker_that_is_killed(
    shards: list[Path], tokenizer: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(PieceMaker, "make", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(InputError, match="a worker was killed"):
        preprocess(shards, tokenizer, tmp_path / "x", workers=2)


@pytest.mark.slow
def test_killed_and_run_again(tokenizer: Path, tmp_path: Path) -> None:
    inputs = [write_shard(tmp_path / f"{number}.json.gz", 600, seed=number) for number in range(6)]
    preprocess(inputs, tokenizer, tmp_path / "expected", workers=1)
    words = ["data_prep", "preprocess", "--input", *inputs, "--tokenizer", tokenizer, "--workers", 2]
    words += ["--output-prefix", tmp_path / "x"]
    command = [sys.executable, "-m", *map(str, words)]
    process = subprocess.Popen(command, cwd=REPOSITORY, start_new_session=True)
    while process.poll() is None and len(list(tmp_path.glob("x.partial/pieces/*"))) < 2:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not manifest_path(tmp_path / "x").exists()
    assert forked_command(*words).returncode == 0
    assert sums(tmp_path / "x") == sums(tmp_path / "expected")
    assert not (tmp_path / "x.partial").exists()
