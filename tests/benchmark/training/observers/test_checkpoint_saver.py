"""Checkpoints while a run trains: triggers, the clock, a background that fails or hangs."""

import dataclasses
import json
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import benchmark.training.loop as loop_module
import benchmark.training.step as step_module
from benchmark.config.run_config import RunConfig
from benchmark.run_record.checkpoint_list import whole_checkpoints
from benchmark.run_record.endings import StopReason
from benchmark.run_record.events.event_log import EventLog
from benchmark.run_record.phases import PhaseLog
from benchmark.run_record.run_progress import starting_progress
from benchmark.training.checkpoints import checkpoint_writer
from benchmark.training.checkpoints.checkpoint_writer import Checkpointer
from benchmark.training.checkpoints.shard_index import RankShard
from benchmark.training.loop import veto_between_steps
from benchmark.training.observer import FinishedStep, Observer
from benchmark.training.observers import checkpoint_saver, run_requests
from benchmark.training.observers.run_requests import TriggerFiles
from benchmark.training.step import NO_FLAGS, StepFlags, StepResult
from benchmark.training.train import train
from tests.benchmark.runs import events, mlperf, system_of
from tests.benchmark.tiny import CPU, SHORT, Inputs, in_processes
from tests.support import changed


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
            while not all(files.save_asked or files.exit_asked for files in watched):
                time.sleep(0.01)
        return step(*arguments, **keywords)

    setattr(loop_module, "train_step", counted)  # noqa: B010
    setattr(run_requests, "LOOK_S", 0.02)  # noqa: B010
    setattr(run_requests, "TriggerFiles", Watched)  # noqa: B010
    return train(config)


@pytest.mark.slow
def test_signals_and_files_save_and_stop_on_all_processes(inputs: Inputs, tmp_path: Path) -> None:
    """What comes in a step is agreed on in the next one."""
    config = inputs.config(tmp_path / "run", SHORT, system=system_of(2), save_interval=100)
    assert in_processes(2, _train_with, config, {1: "SIGUSR1", 2: "SIGUSR2"}) == ["interrupted"] * 2
    assert (saved_after(config.run_dir), whole_checkpoints(config.run_dir)) == ([2, 3], [2, 3])
    assert stop_note(config.run_dir) == {"by": "signal SIGUSR2", "steps": 3, "saved": True}
    (config.run_dir / "exit").touch()  # before the start
    assert in_processes(2, _train_with, config, {1: "exit"}) == ["interrupted"] * 2
    assert stop_note(config.run_dir)["by"] == "exit trigger"
    assert not (config.run_dir / "exit").exists()
    assert whole_checkpoints(config.run_dir)[-1] == 4
    assert in_processes(2, _train_with, config, {1: "save"}) == ["success"] * 2
    assert saved_after(config.run_dir) == [2, 3, 4, 6]
    assert not (config.run_dir / "save").exists()
    assert not (config.run_dir / "stopped.json").exists()
    assert [event["key"] for event in mlperf(config.run_dir)].count("run_stop") == 1


@pytest.mark.slow
def test_by_default_the_clock_decides(inputs: Inputs, tmp_path: Path) -> None:
    """A tenth of this run passes in about one step, so that there is a checkpoint whenever the last one is written."""
    config = inputs.config(tmp_path / "run", save_interval=None, after_checkpoint="bash -c 'echo $CHECKPOINT_STEPS'")
    assert in_processes(1, train, config) == ["success"]
    assert whole_checkpoints(config.run_dir)
    (chosen,) = (line for line in messages(config.run_dir) if line.startswith("checkpoints every"))
    assert chosen.endswith("; at most 10% of the 12 steps that a run takes")
    first, *later = events(config.run_dir, "save_interval")
    assert first["value"] == pytest.approx(first["seconds"], abs=1e-3)
    assert not first["pause_measured"]
    assert later[-1]["pause_measured"]
    done = [event["steps"] for event in events(config.run_dir, "after_checkpoint") if event["value"] == "done"]
    output = config.run_dir / "after_checkpoint" / f"step_{done[0]:08d}.log"
    assert output.read_text() == f"{done[0]}\n"


def _set_limits(limits: dict[str, float]) -> None:
    for name, value in limits.items():
        for module in (checkpoint_saver, checkpoint_writer):
            if hasattr(module, name):
                setattr(module, name, value)


def _with_slow_writing(
    config: RunConfig, slow_after: int, until: str, limits: dict[str, float], later: dict[str, float]
) -> str:
    """The last process writes the checkpoint after that step only when the run has said ``until``. ``limits`` hold
    until that checkpoint is begun, then those of ``later``: other checkpoints may take as long as they take."""
    save, write = Checkpointer.save, Checkpointer._write_shard

    def saved(checkpointer: Checkpointer) -> float:
        if checkpointer._state.progress.steps == slow_after:
            _set_limits(later)
        return save(checkpointer)

    def slow(checkpointer: Checkpointer, folder: Path) -> RankShard:
        steps = int(folder.name.split("_")[1].split(".")[0])
        if int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1:
            while steps == slow_after and until not in (config.run_dir / "events.jsonl").read_text():
                time.sleep(0.05)
        return write(checkpointer, folder)

    setattr(Checkpointer, "save", saved)  # noqa: B010
    setattr(Checkpointer, "_write_shard", slow)  # noqa: B010
    _set_limits(limits)
    return train(config)


@pytest.mark.slow
def test_writing_that_hangs_on_one_process_stops_neither_training_nor_its_end(inputs: Inputs, tmp_path: Path) -> None:
    config = inputs.config(tmp_path / "run", SHORT, system=system_of(2), save_interval=2)
    limits, later = {"STEP_PATIENCE_S": 60.0}, {"STEP_PATIENCE_S": 0.5, "STOP_PATIENCE_S": 0.5}
    assert in_processes(2, _with_slow_writing, config, 4, "never said", limits, later) == ["success"] * 2
    assert saved_after(config.run_dir) == [2]
    said = messages(config.run_dir)
    (late,) = (line for line in said if "a checkpoint is due" in line)
    assert late.startswith("a checkpoint is due, but the checkpoint after 4 steps is still being written, for ")
    assert "(the last one took " in late
    assert any(line.startswith("the checkpoint after 4 steps is still being written after ") for line in said)
    assert json.loads((config.run_dir / "summary.json").read_text())["status"] == "success"


@pytest.mark.slow
def test_slow_process_costs_a_checkpoint_and_the_next_is_written(inputs: Inputs, tmp_path: Path) -> None:
    """The others wait for it only so long, and their group of processes is of no use after that."""
    config = inputs.config(tmp_path / "run", SHORT, system=system_of(2), save_interval=2)
    limits, later = {"WRITE_LIMIT_S": 1.0, "STEP_PATIENCE_S": 60.0}, {"WRITE_LIMIT_S": 60.0}
    given_up = "the checkpoint after 2 steps could not be written: "
    assert in_processes(2, _with_slow_writing, config, 2, given_up, limits, later) == ["success"] * 2
    assert saved_after(config.run_dir) == [4, 6]
    assert any(given_up in line for line in messages(config.run_dir))
    assert sorted(path.name for path in (config.run_dir / "checkpoints").iterdir()) == [
        "step_00000004",
        "step_00000006",
    ]


@pytest.mark.slow
def test_run_that_cannot_be_saved_in_the_end_says_so_and_goes_on_from_an_older_one(
    inputs: Inputs, tmp_path: Path
) -> None:
    config = inputs.config(tmp_path / "run", SHORT, save_interval=2)
    assert in_processes(1, _without_disk_after, config, 2, {3: "exit"}) == ["interrupted"]
    note = stop_note(config.run_dir)
    assert (note["by"], note["saved"]) == ("exit trigger", False)
    steps = note["steps"]
    assert f"step {steps} is not saved: the run resumes from an older checkpoint" in messages(config.run_dir)
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


class Written:
    """Stands in for the checkpointer: notes after which steps it saves."""

    def __init__(self, state: Any, *_: Any) -> None:
        self._progress = state.progress
        self.busy = self.broken = False
        self.writing = None
        self.saved: list[int] = []

    def poll(self) -> None:
        return None

    def save(self) -> float:
        self.saved.append(self._progress.steps)
        return 0.0

    def wait(self, limit_s: float) -> None:
        time.sleep(limit_s)


def saves_of(
    monkeypatch: pytest.MonkeyPatch,
    flags: dict[int, StepFlags],
    *,
    veto: StopReason | None = None,
    patience_s: float = 0.0,
    **fields: Any,
) -> tuple[list[int], list[StopReason | None]]:
    """After which of six steps there is a checkpoint, and what each step says to the run; ``flags`` by step."""
    world: Any = SimpleNamespace(rank=1, size=2, device=None)
    state: Any = SimpleNamespace(progress=starting_progress(SHORT, 1), world=world)
    monkeypatch.setattr(checkpoint_saver, "Checkpointer", Written)
    monkeypatch.setattr(checkpoint_saver, "STEP_PATIENCE_S", patience_s)
    monkeypatch.setattr(checkpoint_saver, "STOP_PATIENCE_S", patience_s)
    monkeypatch.setattr(checkpoint_saver.CheckpointSaver, "_any_of", lambda _, *values: values)
    config = changed(RunConfig(SHORT, dataclasses.replace(CPU, micro_batch_size=2)), **fields)
    other = Observer()
    monkeypatch.setattr(other, "about_to_save", lambda: veto)
    observer: Any = checkpoint_saver.CheckpointSaver(config.run_dir, config.checkpoints, state, EventLog(), PhaseLog())
    said = []
    for number in range(1, 7):
        state.progress.count_step(skipped=False)
        asked = flags.get(number, NO_FLAGS)
        observer._checkpointer.busy = asked.writer_busy
        said.append(
            veto_between_steps(FinishedStep(StepResult(3.5, 0.25, 1e-3, False, asked), 0, 0.0), [other, observer])
        )
    return observer._checkpointer.saved, said


SAVE, BUSY, STOP = StepFlags(save=True), StepFlags(writer_busy=True), StepFlags(sigterm=True)


@pytest.mark.parametrize(
    ("fields", "flags", "expected"),
    [
        ({"save_interval": 2}, {}, [2, 4, 6]),
        ({"save_interval": None, "save_at": (3, 5, 600)}, {2: SAVE, 5: SAVE}, [2, 3, 5]),
        ({"save_interval": 0}, {2: SAVE, 4: STOP}, []),
        ({"save_interval": 500}, {2: STOP}, [2]),
        ({"save_interval": None, "save_at": (2,)}, {2: BUSY, 3: BUSY}, [4]),  # owed until the writer is free
        ({"save_interval": None}, {2: StepFlags(save=True, writer_busy=True), 3: SAVE}, [3]),
    ],
)
def test_after_which_steps_there_are_checkpoints(
    fields: dict[str, Any], flags: dict[int, StepFlags], expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert saves_of(monkeypatch, flags, **fields) == (expected, [None] * 6)


def test_what_an_observer_refuses_is_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    veto = StopReason("failed", "copies differ")
    assert saves_of(monkeypatch, {}, veto=veto, save_interval=6) == ([], [None] * 5 + [veto])
