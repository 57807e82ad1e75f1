"""Whole runs of the tiny benchmark: what they log, interruption and continuation, bad input."""

import dataclasses
import errno
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

import benchmark.training.loop as loop_module
import benchmark.training.step as step_module
from benchmark.config.run_config import RunConfig
from benchmark.run_record.attempt_folder import all_attempts, read_start
from benchmark.run_record.incidents import read_incidents
from benchmark.training.observers import summary_file
from benchmark.training.train import train
from tests.benchmark.runs import command_line, events, figures, mlperf, run, system_of
from tests.benchmark.tiny import SHORT, Inputs, in_processes
from tests.support import assert_refused, changed, command


@pytest.fixture(scope="module")
def whole(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run of two processes that nothing interrupts."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(inputs, folder, system_of(2), precision="bf16")
    return folder


@pytest.fixture(scope="module")
def interrupted(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """The same run, asked to stop in its seventh step."""
    run_dir = tmp_path_factory.mktemp("interrupted") / "run"
    config = inputs.config(run_dir, system=system_of(2), precision="bf16", save_interval=5)
    assert in_processes(2, _train_and_ask_to_stop, config, 7) == ["interrupted"] * 2
    return config


@pytest.mark.slow
def test_training_learns_and_counts_from_the_checkpoint(whole: Path) -> None:
    losses, _, evaluations = figures(whole)
    assert len(losses) == 12
    assert len(evaluations) == 3
    assert evaluations[0] > evaluations[1] > evaluations[2]
    first = events(whole, "step")[0]
    assert (first["iteration"], first["consumed_samples"]) == (4001, 48012)
    assert first["trained_tokens"] == 12 * 16
    assert [event["trained_tokens"] for event in events(whole, "evaluation")] == [768, 1536, 2304]


def _train_and_ask_to_stop(config: RunConfig, after: int) -> str:
    """Send this process SIGTERM in its step number ``after`` (on rank 1 only)."""
    step, count = step_module.train_step, 0

    def counted(*arguments: Any, **keywords: Any) -> Any:
        nonlocal count
        count += 1
        if count == after and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGTERM)
        return step(*arguments, **keywords)

    setattr(loop_module, "train_step", counted)  # noqa: B010
    return train(config)


@pytest.mark.slow
@pytest.mark.parametrize("continued_on", [2, 3])
def test_interrupted_run_continues_where_it_was(
    continued_on: int, interrupted: RunConfig, whole: Path, inputs: Inputs, tmp_path: Path
) -> None:
    shutil.copytree(interrupted.run_dir, tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == [
        "step_00000005",
        "step_00000008",  # the request is agreed on in the step that follows it
    ]
    assert mlperf(tmp_path / "run")[-4]["metadata"]["status"] == "aborted"
    system = system_of(continued_on)
    system = inputs.config(tmp_path, system=system).system
    again = changed(interrupted, run_dir=tmp_path / "run", system=system, seed=None, checkpoint=None)
    assert in_processes(continued_on, train, again) == ["success"] * continued_on
    found, due = figures(tmp_path / "run"), figures(whole)
    if continued_on == 2:
        assert found == due  # to the bit
    else:
        for part, expected in zip(found, due, strict=True):
            assert part == pytest.approx(expected, rel=5e-3)
    log = mlperf(tmp_path / "run")
    keys = [event["key"] for event in log]
    for key in ("init_start", "init_stop", "run_start", "run_stop", "restart", "seed"):
        assert keys.count(key) == 1, key
    evaluations = [event["metadata"]["epoch_num"] for event in log if event["key"] == "eval_accuracy"]
    assert evaluations == [768, 1536, 2304]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["restarts"], summary["seed"], summary["trained_tokens"]) == (1, 17, 2304)


def _fail(config: RunConfig) -> str:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("a bug")

    setattr(loop_module, "train_step", broken)  # noqa: B010
    return train(config)


def test_run_that_an_exception_ends_has_its_run_stop(inputs: Inputs, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError: a bug"):
        in_processes(1, _fail, inputs.config(tmp_path / "run"))
    log = mlperf(tmp_path / "run")
    assert [event["metadata"]["status"] for event in log if event["key"] == "run_stop"] == ["aborted"]
    assert not (tmp_path / "run" / "summary.json").exists()


def test_bad_runs_are_refused_in_one_line_and_an_incident(inputs: Inputs, tmp_path: Path) -> None:
    words = command_line(inputs, **{"--run-dir": tmp_path / "run"})
    done = command("benchmark", "train", *words, "--devices-per-node", "2")
    assert_refused(done, "2 = 2 devices, but 1 process was started")
    assert not (tmp_path / "run").exists()  # refused before the run begins
    done = command("benchmark", "train", *words, "--start-iterations", "3000")
    assert_refused(done, "trained for 4000 steps, but the run starts at 3000")
    assert not (tmp_path / "run" / "summary.json").exists()
    (attempt,) = all_attempts(tmp_path / "run")
    (incident,) = read_incidents(attempt)
    assert (incident.kind, incident.steps) == ("input", None)
    assert done.stderr == f"error: {incident.message}\n"


@pytest.mark.slow
@pytest.mark.parametrize(("target", "status"), [("9", 0), ("0.1", 1)], ids=["reached", "not reached"])
def test_train_as_a_program(target: str, status: int, inputs: Inputs, tmp_path: Path) -> None:
    short = {"--train-samples": 4001 * 12, "--target-log-perplexity": target}
    done = command("benchmark", "train", *command_line(inputs, **{"--run-dir": tmp_path / "run", **short}))
    assert (done.returncode, done.stderr) == (status, "")
    told = "success" if status == 0 else "target not reached"
    assert done.stdout.splitlines()[-1].endswith(f" {told} after 192 tokens")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], summary["trained_samples"], len(summary["evaluations"])) == (told, 12, 1)
    (attempt,) = all_attempts(tmp_path / "run")
    start = read_start(attempt)
    assert start is not None
    assert (start.resumed_at, start.hosts, read_incidents(attempt)) == (None, (os.uname().nodename,), [])


@pytest.mark.slow
def test_continuing_with_other_data_is_refused(interrupted: RunConfig, tmp_path: Path) -> None:
    shutil.copytree(interrupted.run_dir, tmp_path / "run")
    config = dataclasses.replace(interrupted, run_dir=tmp_path / "run")
    other = changed(config, train_data_path=config.data.train_data_path[1:2])
    with pytest.raises(RuntimeError, match="began with --train-data-path"):
        in_processes(2, train, other)


def _train_on_a_disk_that_fails(config: RunConfig, refusals: int) -> str:
    write, count = getattr(summary_file, "write_summary"), 0  # noqa: B009

    def refusing(*arguments: Any) -> None:
        nonlocal count
        count += 1
        if count <= refusals:
            raise OSError(errno.EROFS, "Read-only file system", "summary.json")
        write(*arguments)

    setattr(summary_file, "write_summary", refusing)  # noqa: B010
    return train(config)


@pytest.mark.slow
def test_end_of_a_run_waits_for_a_disk(inputs: Inputs, tmp_path: Path) -> None:
    config = inputs.config(tmp_path / "run", SHORT)
    assert in_processes(1, _train_on_a_disk_that_fails, config, 2) == ["success"]
    assert (tmp_path / "run" / "summary.json").exists()
    told = [event["value"] for event in events(tmp_path / "run", "message")]
    assert sum("summary.json: Read-only file system; tried again for up to" in text for text in told) == 1
