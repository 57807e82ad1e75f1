"""A process that dies or hangs is told about, and one that hangs is ended. Real processes, small limits."""

import contextlib
import faulthandler
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmark.launch.attempt_folder import raise_alarm
from benchmark.launch.heartbeat import HangLimits, Heartbeat
from benchmark.launch.incidents import Incident, read_incidents
from benchmark.launch.watchdog import STACKS_SIGNAL, process_state, waits_in, watched
from tests.drills.acts import children
from tests.forked import fork_server


def _guarded(attempt: Path, body: Callable[[Heartbeat], None], limit_s: float) -> None:
    heartbeat = Heartbeat(HangLimits(limit_s, limit_s))
    with watched(heartbeat, attempt, 5, "n3"), (attempt / "rank_00005.stacks.txt").open("w") as stacks:
        faulthandler.register(STACKS_SIGNAL, file=stacks, all_threads=True)
        heartbeat.enter("passes", 12)
        body(heartbeat)


def guarded(
    attempt: Path, body: Callable[[Heartbeat], None], limit_s: float = 1.0
) -> tuple[int | None, list[Incident]]:
    """Exit code of a process that runs ``body`` under a watchdog, and what was told about it."""
    process = fork_server().Process(target=_guarded, args=(attempt, body, limit_s))
    process.start()
    process.join(120)
    deadline = time.monotonic() + 60
    while process.exitcode != 0 and not (read_incidents(attempt) and (attempt / "alarm").exists()):
        assert time.monotonic() < deadline, "the watchdog, which outlives the process by a moment, says nothing"
        time.sleep(0.05)
    return process.exitcode, read_incidents(attempt)


IN_TIME_S = 3.0
"""Long enough that a machine with much else to do lets the process beat."""


def _in_time(heartbeat: Heartbeat) -> None:
    until = time.monotonic() + 1.3 * IN_TIME_S
    while time.monotonic() < until:
        heartbeat.enter("passes", 12)
        time.sleep(0.1)


def _kill(heartbeat: Heartbeat) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop(heartbeat: Heartbeat) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def a_place_to_hang() -> None:
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(60)


def _hang(heartbeat: Heartbeat) -> None:
    a_place_to_hang()


def _hang_without_a_watchdog(heartbeat: Heartbeat) -> None:
    (watchdog,) = children()
    os.kill(watchdog, signal.SIGKILL)
    a_place_to_hang()


def _wait_for_another(heartbeat: Heartbeat) -> None:
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline:
        heartbeat.enter("passes", 12)
        time.sleep(0.1)


@pytest.mark.slow
def test_process_that_beats_and_leaves_is_left_alone(tmp_path: Path) -> None:
    assert guarded(tmp_path, _in_time, IN_TIME_S) == (0, [])
    assert not (tmp_path / "alarm").exists()


def test_process_killed_without_a_word_is_told_about(tmp_path: Path) -> None:
    status, (incident,) = guarded(tmp_path, _kill, limit_s=60)
    assert status == -signal.SIGKILL
    assert (incident.kind, incident.rank, incident.host) == ("killed", 5, "n3")
    assert (incident.steps, incident.phase) == (12, "passes")
    assert (tmp_path / "alarm").read_text().startswith("killed: rank 5")


@pytest.mark.slow
def test_process_that_hangs_leaves_its_stacks_and_is_killed(tmp_path: Path) -> None:
    status, (incident,) = guarded(tmp_path, _hang)
    assert status == -signal.SIGKILL
    assert (incident.kind, incident.steps, incident.waits_in) == ("hang", 12, None)
    assert incident.message.startswith("no sign of life for")
    assert "in a_place_to_hang" in (tmp_path / "rank_00005.stacks.txt").read_text()


@pytest.mark.slow
def test_watchdog_that_dies_is_followed_by_another(tmp_path: Path) -> None:
    status, (incident,) = guarded(tmp_path, _hang_without_a_watchdog)
    assert (status, incident.kind) == (-signal.SIGKILL, "hang")


@pytest.mark.slow
def test_stopped_process_is_named_as_such_and_killed(tmp_path: Path) -> None:
    status, (incident,) = guarded(tmp_path, _stop)
    assert status == -signal.SIGKILL
    assert incident.state == "T (stopped)"


@pytest.mark.slow
def test_alarm_of_a_hang_elsewhere_ends_the_process(tmp_path: Path) -> None:
    raise_alarm(tmp_path, "hang: rank 3: no sign of life for 60 s")
    status, (incident,) = guarded(tmp_path, _wait_for_another, limit_s=60)
    assert status == -signal.SIGKILL
    assert (incident.kind, incident.message) == ("hang", "hang: rank 3: no sign of life for 60 s")


@pytest.mark.slow
def test_error_elsewhere_ends_a_process_that_does_not_notice(tmp_path: Path) -> None:
    raise_alarm(tmp_path, "exception: rank 3: ValueError: no")
    status, (incident,) = guarded(tmp_path, _wait_for_another, limit_s=60)
    assert status == -signal.SIGKILL
    assert (incident.kind, incident.message) == ("lost connection", "exception: rank 3: ValueError: no")


def test_collective_is_found_in_the_main_thread_s_stack() -> None:
    def listing(*calls: str) -> str:
        frames = "".join(f'  File "/x/torch/distributed/distributed_c10d.py", line 3 in {call}\n' for call in calls)
        other = 'Thread 0x01 (most recent call first):\n  File "/x/torch/distributed/c.py", line 1 in recv\n\n'
        return f'{other}Current thread 0x02 (most recent call first):\n{frames}  File "/r/step.py", line 9 in update\n'

    assert waits_in(listing("all_reduce", "wrapper")) == "all_reduce"
    assert waits_in(listing()) is None
    assert waits_in("") is None


def test_state_is_the_kernel_s() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        os.kill(child.pid, signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)
        assert process_state(child.pid) == "T (stopped)"
    finally:
        child.kill()
        child.wait()
    assert process_state(child.pid) is None
