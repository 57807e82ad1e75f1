"""What a run goes on from when checkpoints are damaged, gone, or when an older one is asked for."""

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import benchmark.training.checkpoints.checkpoint_reader as reader_module
from benchmark.config.run_config import RunConfig
from benchmark.run_record.checkpoint_list import whole_checkpoints
from benchmark.run_record.file_names import checkpoint_path
from benchmark.training.engine.rank_environment import Environment, read_environment
from benchmark.training.train import train
from tests.benchmark.runs import events, figures, mlperf, system_of
from tests.benchmark.tiny import SHORT, Inputs, in_processes
from tests.support import changed

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """A run of two processes with checkpoints after 2, 4 and 6 of its 6 steps."""
    run_dir = tmp_path_factory.mktemp("finished") / "run"
    config = inputs.config(run_dir, SHORT, system=system_of(2), save_interval=2, keep_checkpoints=3)
    assert in_processes(2, train, config) == ["success"] * 2
    return config


@pytest.fixture
def killed(finished: RunConfig, tmp_path: Path) -> RunConfig:
    """As after kill -9 in its sixth step."""
    shutil.copytree(finished.run_dir, tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    shutil.rmtree(checkpoint_path(tmp_path / "run", 6))
    return dataclasses.replace(finished, run_dir=tmp_path / "run")


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def the_same_in_the_end(config: RunConfig, finished: RunConfig, steps: int) -> None:
    """The run went on after ``steps`` steps, and its figures and its log are those of the one that nothing befell."""
    for part, expected in zip(figures(config.run_dir)[:2], figures(finished.run_dir)[:2], strict=True):
        assert part[6:] == expected[steps:]  # to the bit, after the six of the run that was killed
    log = [line["key"] for line in mlperf(config.run_dir)]
    assert [log.count(key) for key in ("init_start", "run_start", "run_stop", "eval_accuracy")] == [1, 1, 1, 2]
    assert log.count("restart") == 1  # at step 0, too: the time that was lost stays in the log
    evaluations = json.loads((config.run_dir / "summary.json").read_text())["evaluations"]
    assert evaluations == json.loads((finished.run_dir / "summary.json").read_text())["evaluations"]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("__1_0.distcp", flip_a_bit),
        ("progress.json", cut_short),
        ("digests.md5", Path.unlink),
    ],
)
def test_damaged_checkpoint_is_set_aside_and_the_next_older_one_taken(
    name: str, damage: Callable[[Path], None], killed: RunConfig, finished: RunConfig
) -> None:
    damage(checkpoint_path(killed.run_dir, 4) / name)
    partial = killed.run_dir / "checkpoints" / "step_00000006.partial"  # what the killed attempt left
    partial.mkdir()
    (partial / "__0_0.distcp").write_bytes(b"half")
    assert in_processes(2, train, killed) == ["success"] * 2
    the_same_in_the_end(killed, finished, 2)
    said = [event["value"] for event in events(killed.run_dir, "message")]
    (line,) = (line for line in said if "is damaged" in line)
    assert line == (
        f"the checkpoint after 4 steps is damaged ({name}): set aside in {killed.run_dir}/checkpoints/set_aside/"
        "001_damaged; the run resumes from the checkpoint after 2 steps"
    )
    assert (killed.run_dir / "checkpoints" / "set_aside" / "001_damaged" / "step_00000004").is_dir()
    assert whole_checkpoints(killed.run_dir) == [2, 4, 6]
    assert not partial.exists()
    assert events(killed.run_dir, "attempt")[-1]["resumed_at"] == 2


def test_initial_checkpoint_is_taken_where_none_is_left(killed: RunConfig, finished: RunConfig) -> None:
    for steps in (2, 4):
        flip_a_bit(checkpoint_path(killed.run_dir, steps) / "__1_0.distcp")
    without = changed(killed, run_dir=killed.run_dir.with_name("without"), checkpoint=None)
    shutil.copytree(killed.run_dir, without.run_dir)
    with pytest.raises(RuntimeError, match=r"InputError: .*no sound checkpoint is left; name the initial one"):
        in_processes(2, train, without)
    assert in_processes(2, train, changed(killed, seed=None)) == ["success"] * 2
    the_same_in_the_end(killed, finished, 0)


def _train_on_bad_machine(config: RunConfig) -> str:
    """The last process reads no file as it was written."""
    if os.environ["RANK"] == "1":
        setattr(reader_module, "md5_file", lambda path: "0" * 32)  # noqa: B010
    return train(config)


def test_machine_that_sees_other_files_costs_no_checkpoint(killed: RunConfig) -> None:
    with pytest.raises(RuntimeError, match=r"is not what rank 0 reads, which is sound|rank 1 on .* cannot read"):
        in_processes(2, _train_on_bad_machine, killed)
    assert whole_checkpoints(killed.run_dir) == [2, 4]
    assert not (killed.run_dir / "checkpoints" / "set_aside").exists()


def _train_in_launch(config: RunConfig, launch: str | None) -> str:
    environment: Environment = dataclasses.replace(read_environment(), launch=launch)
    return train(config, environment)


def test_an_older_checkpoint_is_gone_back_to_once_in_a_launch(killed: RunConfig, finished: RunConfig) -> None:
    config = changed(killed, resume_from=2)
    assert in_processes(2, _train_in_launch, config, "job 7") == ["success"] * 2
    the_same_in_the_end(config, finished, 2)
    aside = [path.relative_to(config.run_dir).as_posix() for path in config.run_dir.rglob("set_aside/*/*")]
    assert aside == ["checkpoints/set_aside/001_back_to_2/step_00000004"]
    (config.run_dir / "summary.json").unlink()
    shutil.rmtree(checkpoint_path(config.run_dir, 6))
    assert in_processes(2, _train_in_launch, config, "job 7") == ["success"] * 2
    assert [event["resumed_at"] for event in events(config.run_dir, "attempt")][-2:] == [2, 4]


def test_one_that_was_asked_for_is_not_replaced_by_another(killed: RunConfig) -> None:
    flip_a_bit(checkpoint_path(killed.run_dir, 2) / "__1_0.distcp")
    log = (killed.run_dir / "result_0.txt").read_bytes()
    with pytest.raises(RuntimeError, match="no checkpoint of 3 steps; there are: 2, 4"):
        in_processes(1, train, changed(killed, resume_from=3))
    # last: the process that holds the lease may be killed here, and the next run would wait until the lease ends
    with pytest.raises(RuntimeError, match=r"step_00000002: __1_0\.distcp damaged or missing"):
        in_processes(2, train, changed(killed, resume_from=2))
    assert whole_checkpoints(killed.run_dir) == [2, 4]
    assert (killed.run_dir / "result_0.txt").read_bytes().startswith(log)
