"""Shards and joins that are killed at any rename, started twice or all at once: the same bytes, or a clear refusal."""

import json
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from checkpoint_convert.conversion.paxml_to_megatron import paxml_to_megatron
from checkpoint_convert.conversion.random_paxml import ModelSizes, write_random_paxml
from checkpoint_convert.conversion.resuming.unfinished import unfinished
from checksums.md5_list import digest_folder, read_list
from stage.task_shard import TaskShard
from tests.checkpoint_convert.tiny import GIB
from tests.forked import run_forked, run_module
from tests.support import REPOSITORY

SIZES = ModelSizes(layers=1, hidden=5, heads=1, vocab=10, positions=4)
"""8 divides none of them, which makes few chunks."""
REFUSALS = ("another conversion is writing it", "taken over", "run the command again", "wait for it to end")


@pytest.fixture(scope="module")
def paxml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paxml") / "checkpoint"
    write_random_paxml(folder, seed=1, sizes=SIZES)
    return folder


@pytest.fixture(scope="module")
def expected(paxml: Path) -> dict[str, str]:
    output = paxml.parent / "expected"
    paxml_to_megatron(paxml, output, dtype="bf16", workers=1, memory_limit=GIB)
    return bare(output)


def bare(output: Path) -> dict[str, str]:
    """What is published: whole, and as its list says."""
    found = digest_folder(output)
    assert found == read_list(output.with_name(f"{output.name}.md5"))
    return {**found, "common.pt": ""}  # PyTorch's bytes differ


def killed_at_a_rename(arguments: list[str]) -> None:
    """``python -m`` of all words but the first two: the process is killed at rename number N of those to a name, or
    of all for ``*``, instead of doing it."""
    wanted, number, *command = arguments
    seen = [0]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def rename(start: Any, target: Any) -> Any:
            if wanted in ("*", Path(target).name):
                seen[0] += 1
                if seen[0] == int(number):
                    os.kill(os.getpid(), signal.SIGKILL)
            return real(start, target)

        return rename

    os.replace = counted(os.replace)
    Path.rename = counted(Path.rename)  # type: ignore[method-assign]
    run_module(command)


def words(paxml: Path, output: Path, shard: str | None = None) -> list[str]:
    found = ["checkpoint_convert", "paxml-to-megatron", "--input", str(paxml), "--output", str(output)]
    found += ["--dtype", "bf16", "--workers", "1", "--json"]
    return found if shard is None else [*found, "--shard", shard]


KILLS = (
    *(("0/2", "*", number) for number in (1, 2, 30)),
    *(("1/2", "*", number) for number in (3, 40)),
    *((None, name, 1) for name in ("*", "common.pt", "out.md5", "out.manifest.json", "out")),
    (None, "out.md5", 2),
    (None, "out.manifest.json", 1),
)
"""Which task, and the rename at which it is killed: to any name, or to one. List and manifest get their names twice,
the first time within OUTPUT.partial."""


@pytest.mark.slow
def test_killed_all_along_the_way(paxml: Path, expected: dict[str, str], tmp_path: Path) -> None:
    for shard in ("0/2", "1/2", None):
        for _, *rename in [kill for kill in KILLS if kill[0] == shard]:
            arguments = [*map(str, rename), *words(paxml, tmp_path / "out", shard)]
            done = run_forked(killed_at_a_rename, arguments, folder=REPOSITORY, timeout=120)
            assert done.returncode == -signal.SIGKILL, (rename, done.stderr)
        done = run_forked(run_module, words(paxml, tmp_path / "out", shard), folder=REPOSITORY, timeout=120)
        assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"already_made": True}  # the last kill was when all but one name was there
    assert bare(tmp_path / "out") == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.manifest.json", "out.md5"]


@pytest.mark.slow
def test_shards_twice_and_joins_twice_all_at_once(paxml: Path, expected: dict[str, str], tmp_path: Path) -> None:
    def run(shard: str | None) -> Any:
        return run_forked(run_module, words(paxml, tmp_path / "out", shard), folder=REPOSITORY, timeout=120)

    with ThreadPoolExecutor(6) as pool:
        ended = list(pool.map(run, ["0/2", "0/2", None, "1/2", None, "1/2"]))
    for done in ended:
        assert "Traceback" not in done.stderr
        assert done.returncode in (0, 2), done.stderr
        if done.returncode:
            assert any(refusal in done.stderr for refusal in REFUSALS), done.stderr
    last = run(None)
    assert last.returncode == 0, last.stderr
    assert bare(tmp_path / "out") == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.manifest.json", "out.md5"]


def test_a_forced_shard_after_its_join_has_nothing_to_do(
    paxml: Path, expected: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"

    def run(shard: TaskShard | None, dtype: str = "bf16") -> bool:
        made = paxml_to_megatron(paxml, output, dtype=dtype, workers=1, memory_limit=GIB, force=True, shard=shard)
        return made is not None

    assert run(None, "fp32")
    assert run(TaskShard(0, 2))  # to replace what was made with other options
    assert run(None)
    assert not run(TaskShard(1, 2))
    assert run(None)  # by itself the command makes it again, as it was told
    joined: list[bool] = []

    def overtaken(*arguments: Any) -> Any:
        """The join ends after the shard has looked whether there is work."""
        if arguments[2] is not None and not joined:
            joined.append(run(None))
        return unfinished(*arguments)

    assert run(None, "fp32")
    monkeypatch.setattr("checkpoint_convert.conversion.run_conversion.unfinished", overtaken)
    assert not run(TaskShard(1, 2))
    assert joined == [True]
    assert bare(output) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.manifest.json", "out.md5"]
