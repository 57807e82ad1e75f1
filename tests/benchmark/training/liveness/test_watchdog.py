"""A process that dies or hangs is told about, and one that hangs is ended. Real processes, small limits."""

import contextlib
import faulthandler
import mmap
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

from benchmark.run_record.attempt_folder import raise_alarm
from benchmark.run_record.incidents import Incident, read_incidents
from benchmark.training.liveness import heartbeat as heartbeat_module
from benchmark.training.liveness import watchdog as module
from benchmark.training.liveness.heartbeat import SIZE, Beat, HangLimits, Heartbeat, latest_beat
from benchmark.training.liveness.watchdog import STACKS_SIGNAL, Watchdog, process_state, waits_in, watched
from tests.drills.acts import children
from tests.forked import fork_server

LONG_S = 1000.0


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def watch(process: "subprocess.Popen[bytes]", attempt: Path, *, limit_s: float = LONG_S) -> tuple[int, list[Incident]]:
    """Watch a process that is after step 12 until it has ended: its exit code, and what is told about it."""
    heartbeat = Heartbeat(HangLimits(limit_s, limit_s))
    heartbeat.enter("passes", 12)
    Watchdog(mmap.mmap(heartbeat.handle, SIZE), process.pid, attempt, 5, "n3").run()
    return process.wait(), read_incidents(attempt)


def test_process_that_beats_and_leaves_is_left_alone(
    tmp_path: Path, child: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that only the test turns: a machine with much else to do delays no beat."""
    now_s, looks = 1000.0, threading.Semaphore(0)

    def look(memory: mmap.mmap) -> Beat:
        looks.release()
        return latest_beat(memory)

    for one in (heartbeat_module, module):
        monkeypatch.setattr(one, "time", SimpleNamespace(**{**vars(time), "monotonic": lambda: now_s}))
    monkeypatch.setattr(module, "latest_beat", look)
    heartbeat = Heartbeat(HangLimits(2.0, 2.0))
    watching = Thread(target=Watchdog(mmap.mmap(heartbeat.handle, SIZE), child.pid, tmp_path, 5, "n3").run)
    watching.start()

    def pass_s(seconds: float) -> None:
        """Let time pass, and wait until the watchdog has looked, which it does twice each time."""
        nonlocal now_s
        now_s += seconds
        while looks.acquire(blocking=False):
            pass
        for _ in range(4):
            assert looks.acquire(timeout=60)

    for _ in range(3):
        heartbeat.enter("passes", 12)
        pass_s(1.9)
    heartbeat.leave()
    pass_s(9.0)
    child.kill()
    watching.join()
    assert (child.wait(), list(tmp_path.iterdir())) == (-signal.SIGKILL, [])


def test_process_killed_without_a_word_is_told_about(tmp_path: Path, child: "subprocess.Popen[bytes]") -> None:
    child.kill()
    status, (incident,) = watch(child, tmp_path)
    assert (status, incident.kind, incident.rank, incident.host) == (-signal.SIGKILL, "killed", 5, "n3")
    assert (incident.steps, incident.phase) == (12, "passes")
    assert (tmp_path / "alarm").read_text().startswith("killed: rank 5")


def test_stopped_process_is_named_as_such_and_killed(tmp_path: Path, child: "subprocess.Popen[bytes]") -> None:
    child.send_signal(signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)
    status, (incident,) = watch(child, tmp_path, limit_s=0.5)
    assert (status, incident.kind, incident.state) == (-signal.SIGKILL, "hang", "T (stopped)")
    assert incident.message.startswith("no sign of life for")
    assert (tmp_path / "alarm").read_text().startswith("hang: rank 5: no sign of life for")
    assert process_state(child.pid) is None


@pytest.mark.parametrize(
    ("alarm", "kind"),
    [("hang: rank 3: no sign of life for 60 s", "hang"), ("exception: rank 3: ValueError: no", "lost connection")],
)
def test_alarm_elsewhere_ends_a_process_that_does_not_notice(
    alarm: str, kind: str, tmp_path: Path, child: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_POLL_S", 0.1)
    monkeypatch.setattr(module, "GRACE_S", 0.3)
    raise_alarm(tmp_path, alarm)
    status, (incident,) = watch(child, tmp_path)
    assert (status, incident.kind, incident.message) == (-signal.SIGKILL, kind, alarm)


def a_place_to_hang() -> None:
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(60)


def _hang_without_a_watchdog(attempt: Path) -> None:
    heartbeat = Heartbeat(HangLimits(LONG_S, LONG_S))
    with watched(heartbeat, attempt, 5, "n3"), (attempt / "rank_00005.stacks.txt").open("w") as stacks:
        faulthandler.register(STACKS_SIGNAL, file=stacks, all_threads=True)
        (watchdog,) = children()
        os.kill(watchdog, signal.SIGKILL)
        heartbeat._limits = HangLimits(1.0, 1.0)
        heartbeat.enter("passes", 12)
        a_place_to_hang()


@pytest.mark.slow
def test_watchdog_that_dies_is_followed_by_another_and_a_hang_leaves_its_stacks(tmp_path: Path) -> None:
    process = fork_server().Process(target=_hang_without_a_watchdog, args=(tmp_path,))
    process.start()
    process.join(120)
    exit_code = process.exitcode
    process.kill()
    assert exit_code == -signal.SIGKILL
    (incident,) = read_incidents(tmp_path)
    assert (incident.kind, incident.steps, incident.waits_in) == ("hang", 12, None)
    assert "in a_place_to_hang" in (tmp_path / "rank_00005.stacks.txt").read_text()


def test_collective_is_found_in_the_main_thread_s_stack() -> None:
    def listing(*calls: str) -> str:
        frames = "".join(f'  File "/x/torch/distributed/distributed_c10d.py", line 3 in {call}\n' for call in calls)
        other = 'Thread 0x01 (most recent call first):\n  File "/x/torch/distributed/c.py", line 1 in recv\n\n'
        return f'{other}Current thread 0x02 (most recent call first):\n{frames}  File "/r/step.py", line 9 in update\n'

    assert waits_in(listing("all_reduce", "wrapper")) == "all_reduce"
    assert waits_in(listing()) is None
    assert waits_in("") is None
