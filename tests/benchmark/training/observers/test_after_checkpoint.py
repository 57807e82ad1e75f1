"""The user's command after a checkpoint: started, noted, and never felt by the run."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from benchmark.run_record.endings import StopReason
from benchmark.training.observers.after_checkpoint import AfterCheckpoint
from tests.benchmark.tiny import TINY

END = StopReason("success", "")


class Noted:
    """The log of a run, as far as the command writes to it."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, Any, dict[str, Any]]] = []

    def note(self, key: str, value: Any = None, **metadata: Any) -> None:
        self.notes.append((key, value, metadata))

    def outcomes(self, count: int = 0) -> list[tuple[int, str]]:
        """Wait until there are so many."""
        deadline = time.monotonic() + 60
        while True:
            found = [(fields["steps"], value) for key, value, fields in self.notes if key == "after_checkpoint"]
            if len(found) >= count:
                return found
            assert time.monotonic() < deadline, self.notes
            time.sleep(0.01)


def hook_of(run_dir: Path, *command: str, close_s: float = 60.0) -> tuple[AfterCheckpoint, Noted]:
    run_dir.mkdir(exist_ok=True)
    noted: Any = Noted()
    return AfterCheckpoint(command, run_dir, TINY, "cpu_p1", noted, close_s=close_s), noted


def test_the_command_learns_which_checkpoint_and_not_which_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": "0", "SLURM_NTASKS": "512", "KEPT": "yes"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    hook, noted = hook_of(Path("run"), "env")
    hook.start_for(8)
    hook.end(END)
    assert noted.outcomes() == [(8, "done")]
    fields = noted.notes[0][2]
    assert (fields["status"], fields["output"]) == (0, "run/after_checkpoint/step_00000008.log")
    given = dict(line.split("=", 1) for line in hook.output(8).read_text().splitlines() if "=" in line)
    run_dir = tmp_path / "run"
    assert {name: value for name, value in given.items() if name.startswith(("CHECKPOINT_", "RUN_", "KEPT"))} == {
        "CHECKPOINT_DIR": str(run_dir / "checkpoints" / "step_00000008"),
        "CHECKPOINT_STEPS": "8",
        "CHECKPOINT_SAMPLES": "96",
        "CHECKPOINT_TOKENS": "1536",
        "RUN_DIR": str(run_dir),
        "RUN_CONFIG": str(run_dir / "config.json"),
        "RUN_BENCHMARK": "tiny",
        "RUN_SYSTEM": "cpu_p1",
        "KEPT": "yes",
    }
    assert not {"RANK", "SLURM_NTASKS"} & given.keys()


@pytest.mark.parametrize(("command", "status"), [("false", 1), ("/none/such", 127)])
def test_a_failure_is_told(command: str, status: int, tmp_path: Path) -> None:
    (tmp_path / "after_checkpoint").write_text("in the way")
    hook, noted = hook_of(tmp_path, command)
    hook.start_for(4)
    assert noted.outcomes(1) == [(4, "not started: File exists")]
    hook.end(END)
    (tmp_path / "after_checkpoint").unlink()
    hook, noted = hook_of(tmp_path, command)
    hook.start_for(8)
    hook.end(END)
    assert noted.outcomes() == [(8, "failed")]
    told = [value for key, value, _ in noted.notes if key == "message"]
    assert told == [f"the command after the checkpoint of 8 steps: failed, status {status}; see {hook.output(8)}"]


def test_one_at_a_time_and_then_that_of_the_newest_checkpoint(tmp_path: Path) -> None:
    go = tmp_path / "go"
    hook, noted = hook_of(tmp_path, "bash", "-c", f"until [[ -e {go} ]]; do sleep 0.02; done; echo $CHECKPOINT_STEPS")
    for steps in (8, 16, 24):
        hook.start_for(steps)
    passed_over = "passed over: the former command still ran when the next checkpoint came"
    assert noted.outcomes() == [(16, passed_over)]
    go.touch()
    assert noted.outcomes(3) == [(16, passed_over), (8, "done"), (24, "done")]
    assert hook.output(24).read_text() == "24\n"
    assert not hook.output(16).exists()


def test_one_that_hangs_is_left_to_itself_at_the_end(tmp_path: Path) -> None:
    hook, noted = hook_of(tmp_path, "bash", "-c", "echo $$; exec sleep 600", close_s=0.1)
    hook.start_for(8)
    hook.start_for(16)
    deadline = time.monotonic() + 60
    while not (hook.output(8).exists() and hook.output(8).read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    hook.end(END)
    ends = [(8, "left running at the end of the run"), (16, "not started: the run was at its end")]
    assert noted.outcomes() == ends
    pid = int(hook.output(8).read_text())
    assert os.getsid(pid) == pid  # signals for the run's session or group do not reach it
    os.kill(pid, signal.SIGKILL)
    assert noted.outcomes(3)[-1] == (8, "failed")
