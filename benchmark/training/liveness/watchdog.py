"""The watchdog beside each process of a run: a process of its own, so that nothing that blocks the run blocks it.

It checks whether the process lives and beats (heartbeat.py). If the process dies without a word, by kill -9 or for lack
of memory, the watchdog writes its incident. If the process is silent for too long, the watchdog has it write its Python
stacks, by a signal whose handler needs neither the interpreter's lock nor an answer from the device, and kills it: then
the launcher starts the run again. It also kills a process that goes on for long after another process has raised the
alarm: collectives whose partner is gone do not always fail.
"""

import mmap
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from benchmark.run_record.attempt_folder import raise_alarm
from benchmark.run_record.file_names import ALARM_FILE, COLLECTIVES_FILE, STACKS_FILE, rank_file
from benchmark.run_record.incidents import Incident, write_incident
from benchmark.run_record.small_files import wait_for, warn
from benchmark.training.liveness.heartbeat import SIZE, Beat, Heartbeat, ask, latest_beat
from foundation.file_formats.json_files import UNREADABLE, read_json
from foundation.git import REPOSITORY

STACKS_SIGNAL = signal.SIGQUIT
"""Signal at which the process writes its stacks to its file and goes on."""
MOST_POLL_S = 5.0
"""Most seconds between looks; 2,048 watchdogs look into one folder of a shared disk."""
STACKS_S = 2.0
"""Seconds that writing the stacks may take; the first watchdog waits as long for the stacks of other processes."""
GRACE_S = 10.0
"""Seconds after another process's alarm in which this process may fail by itself and say why."""
SUSPENDED_S = 5.0
"""Seconds: a watchdog that slept longer than it meant to by so much was suspended with its process."""
TO_FOLLOW_S = 1.0
"""Seconds between the death of a watchdog and the start of the next one."""
WRITING_S = 10.0
"""Most seconds that writing an incident may take: a slow disk is no reason to leave a process hanging."""
GONE_S = 60.0
"""Seconds for which the word of a process that is gone is tried again on a disk that gives errors; the others go on
without it meanwhile."""
COLLECTIVE = re.compile(r'File "[^"]*(?:torch/distributed/[^"]*|model/passes/waits\.py)", line \d+ in (\w+)')
"""Pattern of a call in faulthandler's listing of the stacks, which has the innermost frame first: a call of PyTorch's,
or a wait of passes for an operation that they began earlier."""


@contextmanager
def watched(heartbeat: Heartbeat, attempt: Path, rank: int, host: str) -> Iterator[None]:
    """Run a watchdog for this process until the block ends; if the watchdog dies, start another."""
    words = [heartbeat.handle, os.getpid(), attempt.resolve(), rank, host]
    command = [sys.executable, "-m", __name__, *map(str, words)]
    leaving = threading.Event()
    children: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        children.append(
            subprocess.Popen(
                command, cwd=REPOSITORY, pass_fds=[heartbeat.handle], stdin=subprocess.DEVNULL, start_new_session=True
            )
        )

    def follow() -> None:
        while not leaving.is_set():
            children[-1].wait()
            if not leaving.wait(TO_FOLLOW_S):
                start()

    start()
    threading.Thread(target=follow, name="watchdog's watchdog", daemon=True).start()
    try:
        yield
    finally:
        heartbeat.leave()
        leaving.set()
        children[-1].kill()


def end_within(process: int) -> Callable[[float], bool]:
    """Return what waits so many seconds for the end of this process's parent, and says whether it has come. Raises
    ProcessLookupError if it has come already."""
    if not hasattr(os, "pidfd_open"):  # not Linux

        def look_afterwards(seconds: float) -> bool:
            time.sleep(seconds)
            return os.getppid() != process

        return look_afterwards
    watched = select.poll()
    watched.register(os.pidfd_open(process), select.POLLIN)
    return lambda seconds: bool(watched.poll(1000 * seconds))


class Watchdog:
    def __init__(self, memory: mmap.mmap, process: int, attempt: Path, rank: int, host: str) -> None:
        self._memory, self._process, self._attempt, self._rank, self._host = memory, process, attempt, rank, host
        self._alarm_seen_s: float | None = None
        self._awake_since_s = 0.0
        """Time when a suspension of the whole job ended; silence before it means nothing."""

    def run(self) -> None:
        """Watch the process; return when it is gone."""
        try:
            has_ended = end_within(self._process)
        except ProcessLookupError:
            self._is_gone()
            return
        looked_s = time.monotonic()
        while not has_ended(self._poll_s()):
            now, beat = time.monotonic(), latest_beat(self._memory)
            if now - looked_s > MOST_POLL_S + SUSPENDED_S:
                self._awake_since_s = now
            looked_s = now
            silent_s = min(beat.silent_s, now - self._awake_since_s)
            if beat.phase is not None and silent_s > beat.limit_s:
                self._end(f"no sign of life for {silent_s:.0f} s", "hang")
            elif (alarm := self._alarm()) is not None:
                self._end(alarm, "hang" if alarm.startswith("hang") else "lost connection")
        self._is_gone()

    def _poll_s(self) -> float:
        return min(MOST_POLL_S, max(0.2, latest_beat(self._memory).limit_s / 20))

    def _alarm(self) -> str | None:
        """Return another process's alarm, once this process had time to fail by itself; else None."""
        try:
            text = (self._attempt / ALARM_FILE).read_text(encoding="utf-8", errors="replace")[:1000]
        except OSError:
            return None
        now = time.monotonic()
        self._alarm_seen_s = self._alarm_seen_s or now
        hang = text.startswith("hang")
        return " ".join(text.split()) if hang or now - self._alarm_seen_s > GRACE_S else None

    def _is_gone(self) -> None:
        beat = latest_beat(self._memory)
        if beat.phase is None:
            return
        text = "gone without a word: killed (kill -9), or the host ran out of memory"
        incident = self._incident(beat, "killed", text)
        with suppress(OSError):
            wait_for(lambda: write_incident(self._attempt, incident), GONE_S, warn)
            wait_for(lambda: raise_alarm(self._attempt, f"killed: rank {self._rank}"), GONE_S, warn)

    def _end(self, why: str, kind: Literal["hang", "lost connection"]) -> None:
        """Write the process's stacks and state, then kill it; it is killed even if the writing fails."""
        writing = threading.Thread(target=self._tell, args=(why, kind), daemon=True)
        writing.start()
        writing.join(WRITING_S)
        with suppress(ProcessLookupError):  # it has left meanwhile
            os.kill(self._process, signal.SIGKILL)

    def _tell(self, why: str, kind: Literal["hang", "lost connection"]) -> None:
        beat, state, waiting = latest_beat(self._memory), process_state(self._process), None
        with suppress(OSError):
            if kind == "hang":
                wait_for(lambda: raise_alarm(self._attempt, f"hang: rank {self._rank}: {why}"), WRITING_S, warn)
            ask(self._memory)
            waiting = waits_in(self._stacks())
        if waiting is not None:
            waiting = self._pending() or waiting
        incident = self._incident(beat, kind, why, waits_in=waiting, state=state)
        with suppress(OSError):
            wait_for(lambda: write_incident(self._attempt, incident), GONE_S, warn)
        if kind == "hang":
            time.sleep(min(STACKS_S, 2 * self._poll_s()))  # the others' watchdogs want to see their processes alive

    def _incident(
        self,
        beat: Beat,
        kind: Literal["hang", "lost connection", "killed"],
        message: str,
        *,
        waits_in: str | None = None,
        state: str | None = None,
    ) -> Incident:
        phase = beat.phase or "end"
        return Incident(
            time.time(), self._rank, self._host, self._process, kind, beat.steps, phase, message, waits_in, state
        )

    def _pending(self) -> str | None:
        """Return the oldest unfinished collective, from the file that the process wrote; None if there is no such
        file."""
        path = rank_file(self._attempt, self._rank, COLLECTIVES_FILE)
        try:
            lines = read_json(path, list)
            return str(lines[0]) if lines else None
        except UNREADABLE:
            return None

    def _stacks(self) -> str:
        """Have the process write its stacks, and read them; empty if it cannot, for example because it is stopped."""
        path = rank_file(self._attempt, self._rank, STACKS_FILE)
        if not path.exists():  # the process made it when its handler was ready
            return ""
        os.kill(self._process, STACKS_SIGNAL)
        deadline, size = time.monotonic() + STACKS_S, -1
        while time.monotonic() < deadline and not 0 < path.stat().st_size == size:
            size = path.stat().st_size
            time.sleep(0.1)
        return path.read_text(encoding="utf-8", errors="replace")


def process_state(process: int) -> str | None:
    """Return the state of a process in the kernel's words, such as "T (stopped)"; None if the process is gone."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        with suppress(ProcessLookupError):
            os.kill(process, 0)
            return None if Path("/proc/self/status").exists() else "not known"
        return None
    return next((line.split(maxsplit=1)[1] for line in lines if line.startswith("State:")), None)


def waits_in(stacks: str) -> str | None:
    """Return the call in which the main thread waits for other processes; None if it waits in none.

    ``stacks`` is faulthandler's listing, which has the main thread last. The caller of a ``wait`` of PyTorch's says
    more than the ``wait``.
    """
    calls = COLLECTIVE.findall(re.split("[Tt]hread 0x", stacks)[-1])
    return next((call for call in calls if call != "wait"), calls[0] if calls else None)


def main(memory: str, process: str, attempt: str, rank: str, host: str) -> None:
    """Watch a process; ``memory``: file descriptor of its heartbeat."""
    for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # meant for the run: the watchdog outlives it by a moment
    Watchdog(mmap.mmap(int(memory), SIZE), int(process), Path(attempt), int(rank), host).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
