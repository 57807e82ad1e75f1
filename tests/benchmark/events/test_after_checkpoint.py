"""The user's command after a checkpoint: started, noted, and never felt by the run."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from benchmark.events.after_checkpoint import AfterCheckpoint
from benchmark.events.background_sink import Background
from benchmark.training.checkpoints.checkpoint_folder import checkpoint_path
from tests.benchmark.events.recorder import event
from tests.benchmark.tiny import TINY


class Noted:
    def __init__(self) -> None:
        self.notes: list[tuple[str, Any, dict[str, Any]]] = []

    def note(self, key: str, value: Any = None, **metadata: Any) -> None:
        self.notes.append((key, value, metadata))

    def outcomes(self) -> list[tuple[int, str]]:
        return [(fields["steps"], value) for key, value, fields in self.notes if key == "after_checkpoint"]

    def wait_for(self, count: int) -> list[tuple[int, str]]:
        deadline = time.monotonic() + 60
        while len(self.outcomes()) < count:
            assert time.monotonic() < deadline, self.notes
            time.sleep(0.01)
        return self.outcomes()


def hook_of(run_dir: Path, *command: str, close_s: float = 60.0) -> tuple[AfterCheckpoint, Noted]:
    run_dir.mkdir(exist_ok=True)
    hook, noted = AfterCheckpoint(command, run_dir, TINY, "cpu_p1", checkpoint_path, close_s=close_s), Noted()
    hook.notes = noted
    return hook, noted


def written(steps: int) -> Any:
    return event("checkpoint_written", steps=steps, seconds=1.0, bytes=5)


def test_the_command_learns_which_checkpoint_and_not_which_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("SLURM_NTASKS", "512")
    monkeypatch.setenv("KEPT", "yes")
    monkeypatch.chdir(tmp_path)
    hook, noted = hook_of(Path("run"), "env")
    hook.write(event("checkpoint", steps=8, seconds=0.1))
    hook.write(written(8))
    hook.close()
    assert noted.outcomes() == [(8, "done")]
    fields = noted.notes[0][2]
    assert (fields["status"], fields["output"]) == (0, "run/after_checkpoint/step_00000008.log")
    given = dict(line.split("=", 1) for line in hook.output(8).read_text().splitlines() if "=" in line)
    assert given["CHECKPOINT_DIR"] == str(tmp_path / "run" / "checkpoints" / "step_00000008")
    assert (given["CHECKPOINT_STEPS"], given["CHECKPOINT_SAMPLES"], given["CHECKPOINT_TOKENS"]) == ("8", "96", "1536")
    assert (given["RUN_DIR"], given["RUN_CONFIG"]) == (str(tmp_path / "run"), str(tmp_path / "run" / "config.json"))
    assert (given["RUN_BENCHMARK"], given["RUN_SYSTEM"], given["KEPT"]) == ("tiny", "cpu_p1", "yes")
    assert not {"RANK", "SLURM_NTASKS"} & given.keys()


@pytest.mark.parametrize(("command", "status"), [(("false",), 1), (("/none/such",), 127)])
def test_a_failure_is_told(command: tuple[str, ...], status: int, tmp_path: Path) -> None:
    hook, noted = hook_of(tmp_path, *command)
    hook.write(written(8))
    hook.close()
    assert noted.outcomes() == [(8, "failed")]
    told = [value for key, value, _ in noted.notes if key == "message"]
    assert told == [f"the command after the checkpoint of 8 steps: failed, status {status}; see {hook.output(8)}"]


def test_one_at_a_time_and_then_that_of_the_newest_checkpoint(tmp_path: Path) -> None:
    go = tmp_path / "go"
    hook, noted = hook_of(tmp_path, "bash", "-c", f"until [[ -e {go} ]]; do sleep 0.02; done; echo $CHECKPOINT_STEPS")
    for steps in (8, 16, 24):
        hook.write(written(steps))
    passed_over = "passed over: the one before it still ran when the next checkpoint came"
    assert noted.outcomes() == [(16, passed_over)]
    go.touch()
    assert noted.wait_for(3) == [(16, passed_over), (8, "done"), (24, "done")]
    assert hook.output(24).read_text() == "24\n"
    assert not hook.output(16).exists()


def test_one_that_hangs_is_left_to_itself_at_the_end(tmp_path: Path) -> None:
    hook, noted = hook_of(tmp_path, "bash", "-c", "echo $$; exec sleep 600", close_s=0.2)
    background = Background(hook)
    for steps in (8, 16):
        background.write(written(steps))
    deadline = time.monotonic() + 60
    while not (hook.output(8).exists() and hook.output(8).read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    started = time.perf_counter()
    background.close()
    assert time.perf_counter() - started < 30.0
    ends = [(8, "left running at the end of the run"), (16, "not started: the run was at its end")]
    assert noted.outcomes() == ends
    pid = int(hook.output(8).read_text())
    assert os.getsid(pid) == pid  # signals for the run's session or group do not reach it
    os.kill(pid, signal.SIGKILL)
    assert noted.wait_for(3)[-1] == (8, "failed")


def test_output_that_cannot_be_written_is_an_error_of_the_sink_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "after_checkpoint").write_text("in the way")
    hook, noted = hook_of(tmp_path / "run", "true")
    with pytest.raises(OSError, match="File exists"):
        hook.write(written(8))
    (tmp_path / "run" / "after_checkpoint").unlink()
    hook.write(written(8))
    hook.close()
    assert noted.outcomes() == [(8, "done")]
    assert json.dumps(noted.notes[0][2])
