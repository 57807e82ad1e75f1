"""Checkpoints while a run trains: triggers, the clock, a background that fails or hangs."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import benchmark.training.loop as loop_module
import benchmark.training.step as step_module
import benchmark.training.train as train_module
from benchmark.config.run_config import RunConfig
from benchmark.training import run_requests
from benchmark.training.checkpoints import checkpoint_writer, run_saves
from benchmark.training.checkpoints.checkpoint_folder import whole_checkpoints
from benchmark.training.checkpoints.checkpoint_writer import Checkpointer
from benchmark.training.run_requests import TriggerFiles
from benchmark.training.step import StepResult
from benchmark.training.train import train
from tests.benchmark.runs import events, mlperf, system_of
from tests.benchmark.tiny import SHORT, Inputs, in_processes

pytestmark = pytest.mark.slow


def messages(run_dir: Path) -> list[str]:
    return [event["value"] for event in events(run_dir, "message")]


def stop_note(run_dir: Path) -> Any:
    return json.loads((run_dir / "stopped.json").read_text())


def saved_after(run_dir: Path) -> list[int]:
    return [event["steps"] for event in events(run_dir, "checkpoint_written")]


def _train_with(config: RunConfig, at_step: dict[int, str]) -> str:
    """What happens before the run's steps, counted from 1: a signal to the last rank, or a file from outside."""
    step, count = step_module.train_step, 0
    watched: list[TriggerFiles] = []

    class Watched(TriggerFiles):
        def __init__(self, run_dir: Path) -> None:
            super().__init__(run_dir)
            watched.append(self)

    def counted(*arguments: Any, **keywords: Any) -> StepResult:
        nonlocal count
        count += 1
        happens = at_step.get(count, "")
        if happens.startswith("SIG") and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.Signals[happens])
        elif happens and not happens.startswith("SIG"):
            (config.run_dir / happens).touch()
            while not all(files.save_asked() or files.exit_asked() for files in watched):
                time.sleep(0.01)
        return step(*arguments, **keywords)

    setattr(loop_module, "train_step", counted)  # noqa: B010
    setattr(run_requests, "LOOK_S", 0.02)  # noqa: B010
    setattr(run_requests, "TriggerFiles", Watched)  # noqa: B010
    return train(config)


def test_signals_and_files_save_and_stop_on_all_processes(inputs: Inputs, tmp_path: Path) -> None:
    """What comes in a step is agreed on in the next one."""
    config = inputs.config(tmp_path / "run", SHORT, system=system_of(2), save_interval=100)
    assert in_processes(2, _train_with, config, {1: "SIGUSR1", 4: "SIGUSR2"}) == ["interrupted"] * 2
    assert (saved_after(config.run_dir), whole_checkpoints(config.run_dir)) == ([2, 5], [2, 5])
    assert stop_note(config.run_dir) == {"by": "signal SIGUSR2", "steps": 5, "saved": True}
    (config.run_dir / "exit").touch()  # before the start
    assert in_processes(2, _train_with, config, {1: "exit"}) == ["interrupted"] * 2
    assert stop_note(config.run_dir)["by"] == "exit trigger"
    assert not (config.run_dir / "exit").exists()
    assert whole_checkpoints(config.run_dir)[-1] == 6
    assert in_processes(2, train, config) == ["success"] * 2
    assert not (config.run_dir / "stopped.json").exists()
    assert [event["key"] for event in mlperf(config.run_dir)].count("run_stop") == 1
    other = inputs.config(tmp_path / "other", SHORT, save_interval=100, save_at=(5,))
    assert in_processes(1, _train_with, other, {1: "save"}) == ["success"]
    assert saved_after(other.run_dir) == [2, 5]
    assert not (other.run_dir / "save").exists()


def test_by_default_the_clock_decides(inputs: Inputs, tmp_path: Path) -> None:
    """A tenth of this run passes in about one step, so that there is a checkpoint whenever the last one is written."""
    config = inputs.config(tmp_path / "run", system=system_of(2), save_interval=None)
    assert in_processes(2, train, config) == ["success"] * 2
    assert whole_checkpoints(config.run_dir)
    (chosen,) = (line for line in messages(config.run_dir) if line.startswith("checkpoints every"))
    assert chosen.endswith("; at most 10% of the 12 steps that a run takes")
    first = events(config.run_dir, "save_interval")[0]
    assert first["value"] == pytest.approx(first["seconds"], abs=1e-3)
    assert not first["pause_measured"]


def _with_slow_writing(config: RunConfig, slow_after: int, until: str, limits: dict[str, float]) -> str:
    """The last process writes the checkpoint after that step only when the run has said ``until``."""
    write = Checkpointer._write_shards

    def slow(checkpointer: Checkpointer, folder: Path) -> dict[str, str]:
        steps = int(folder.name.split("_")[1].split(".")[0])
        if int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1:
            while steps == slow_after and until not in (config.run_dir / "events.jsonl").read_text():
                time.sleep(0.05)
        return write(checkpointer, folder)

    setattr(Checkpointer, "_write_shards", slow)  # noqa: B010
    for name, value in limits.items():
        for module in (run_saves, loop_module, train_module, checkpoint_writer):
            if hasattr(module, name):
                setattr(module, name, value)
    return train(config)


def test_writing_that_hangs_on_one_process_stops_neither_training_nor_its_end(inputs: Inputs, tmp_path: Path) -> None:
    config = inputs.config(tmp_path / "run", SHORT, system=system_of(2), save_interval=2)
    limits = {"STEP_PATIENCE_S": 3.0, "STOP_PATIENCE_S": 0.5}
    assert in_processes(2, _with_slow_writing, config, 4, "never said", limits) == ["success"] * 2
    assert saved_after(config.run_dir) == [2]
    said = messages(config.run_dir)
    (late,) = (line for line in said if "a checkpoint is due" in line)
    assert late.startswith("a checkpoint is due, but the one after 4 steps is still being written, for ")
    assert "(the last one took " in late
    assert any(line.startswith("the checkpoint after 4 steps is still being written after ") for line in said)
    assert json.loads((config.run_dir / "summary.json").read_text())["status"] == "success"


def test_slow_process_costs_a_checkpoint_and_the_next_is_written(inputs: Inputs, tmp_path: Path) -> None:
    """The others wait for it only so long, and their group of processes is of no use after that."""
    config = inputs.config(tmp_path / "run", SHORT, system=system_of(2), save_interval=2)
    limits, given_up = {"WRITE_LIMIT_S": 4.0}, "the checkpoint after 2 steps could not be written: "
    assert in_processes(2, _with_slow_writing, config, 2, given_up, limits) == ["success"] * 2
    assert saved_after(config.run_dir) == [4, 6]
    assert any(given_up in line for line in messages(config.run_dir))
    assert sorted(path.name for path in (config.run_dir / "checkpoints").iterdir()) == [
        "step_00000004",
        "step_00000006",
    ]


def test_run_that_cannot_be_saved_in_the_end_says_so_and_goes_on_from_an_older_one(
    inputs: Inputs, tmp_path: Path
) -> None:
    config = inputs.config(tmp_path / "run", SHORT, save_interval=2)
    assert in_processes(1, _without_disk_after, config, 2, {3: "exit"}) == ["interrupted"]
    note = stop_note(config.run_dir)
    assert (note["by"], note["saved"]) == ("exit trigger", False)
    steps = note["steps"]
    assert f"step {4000 + steps} is not saved: an older one goes on" in messages(config.run_dir)
    assert in_processes(1, train, config) == ["success"]
    again = [event["iteration"] for event in events(config.run_dir, "step")]
    assert again == [*range(4001, 4001 + steps), *range(4003, 4007)]


def _without_disk_after(config: RunConfig, steps: int, at_step: dict[int, str]) -> str:
    make = checkpoint_writer._make_empty

    def full(folder: Path) -> None:
        if int(folder.name.split("_")[1].split(".")[0]) > steps:
            raise OSError(30, "Read-only file system")
        make(folder)

    setattr(checkpoint_writer, "_make_empty", full)  # noqa: B010
    return _train_with(config, at_step)


def test_state_that_is_not_finite_is_known_on_all_processes(inputs: Inputs, tmp_path: Path) -> None:
    config = inputs.config(tmp_path / "run", SHORT, system=system_of(2), save_interval=2)
    assert in_processes(2, _spoil_and_ask, config) == [[True, False]] * 2


def _spoil_and_ask(config: RunConfig) -> list[bool]:
    found: list[bool] = []

    class Enough(Exception):
        pass

    def look(*arguments: Any) -> str:
        work = arguments[3]
        work.step()
        found.append(work.is_finite())
        if os.environ["RANK"] == "1":
            next(iter(work.state.tensors().values())).fill_(float("nan"))
        found.append(work.is_finite())
        raise Enough

    setattr(train_module, "run_loop", look)  # noqa: B010
    with contextlib.suppress(Enough):
        train(config)
    return found
