"""Workers that make parts: what is done stays done, and a worker that is killed is told."""

import os
import resource
import signal
from pathlib import Path

import pytest

from data_prep.preprocessing.preprocess import preprocess
from data_prep.preprocessing.tokenize_workers import make_file
from stage.errors import InputError
from tests.data_prep.shards import Sums, sums
from tests.forked import run_forked, run_module
from tests.support import REPOSITORY, assert_refused


def test_only_what_is_not_done_is_done_again(
    shards: list[Path],
    tokenizer: Path,
    expected: Sums,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    broken = [*shards[:3], tmp_path / "broken.json.gz", shards[4]]
    broken[3].write_bytes(shards[3].read_bytes()[:-30])
    with pytest.raises(InputError, match=r"broken.json.gz: truncated or damaged gzip"):
        preprocess(broken, tokenizer, tmp_path / "x", workers=1)
    assert len(list((tmp_path / "x.parts").glob("*.bin"))) == 3
    broken[3].write_bytes(shards[3].read_bytes())
    made_again: list[int] = []
    monkeypatch.setattr(
        "data_prep.preprocessing.tokenize_workers.make_file",
        lambda parts, *others: made_again.append(parts[0].number) or make_file(parts, *others),  # type: ignore[func-returns-value]
    )
    preprocess(broken, tokenizer, tmp_path / "x", workers=1)
    assert made_again == [3, 4]
    assert sums(tmp_path / "x") == expected


def test_a_worker_that_is_killed(
    shards: list[Path], tokenizer: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        "data_prep.preprocessing.tokenize_workers.make_file", lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    )
    with pytest.raises(InputError, match="a worker was killed"):
        preprocess(shards, tokenizer, tmp_path / "x", workers=2)


def _with_few_files(arguments: list[str]) -> None:
    limit = int(arguments.pop())
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    run_module(arguments)


@pytest.mark.parametrize(("limit", "workers", "enough"), [(60, 8, False), (112, 8, True), (56, 1, True)])
def test_few_open_files(
    limit: int, workers: int, enough: bool, shards: list[Path], tokenizer: Path, expected: Sums, tmp_path: Path
) -> None:
    """Refused before it begins, or it works: with two groups of workers for a file each, too."""
    words = ["--tokenizer", tokenizer, "--output-prefix", tmp_path / "x", "--workers", workers]
    arguments = ["data_prep", "preprocess", "--input", *shards, *words, limit]
    done = run_forked(_with_few_files, [str(word) for word in arguments], folder=REPOSITORY, timeout=60)
    if enough:
        assert done.returncode == 0, done.stderr
        assert sums(tmp_path / "x") == expected
    else:
        assert_refused(done, "--workers 8: takes 112 open files, but 60 are allowed here (ulimit -n)")
