"""Incidents: the failure of a process, written by it or by its watchdog, and read by the launcher.

One fault makes every process fail, because the others lose their partner; people and the launcher want the first cause.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmark.run_record.file_names import ALARM_FILE, INCIDENT_FILE, rank_file
from benchmark.run_record.phases import PHASES
from benchmark.run_record.small_files import read_record, write_object
from foundation.disk_answers import entries_in, is_there

IncidentKind = Literal[
    "exception", "out of memory", "device", "disk", "killed", "hang", "meeting", "input", "check", "lost connection"
]
"""device: an error of the accelerator or its links. killed: gone without a word, for example by kill -9 or because the
host ran out of memory. hang: no sign of life for too long. meeting: not all processes came together. input: bad input
that a person has to mend. check: a check that ran and failed, for example because copies differ. lost connection:
another process went away."""
LONGEST_MESSAGE = 400
ALARM, MOST_ALARM_BYTES = re.compile(rb"[a-z ]+: rank ([0-9]{1,9})\b"), 1000
"""Pattern of an alarm's beginning, and most bytes of it that are read."""
NATIVE = re.compile(r"\[?\S+\.(cc|cpp|cu|h|hpp):\d+\]?:? *| This is typically caused by .*| GLHF!.*")
"""Parts of PyTorch's messages that help nobody: the line of its own C++ that failed, and good wishes."""


@dataclass(frozen=True)
class Incident:
    time_s: float
    """Seconds since the epoch, by the host's clock."""
    rank: int
    host: str
    pid: int
    kind: IncidentKind
    steps: int | None
    """Optimizer steps done since the initial checkpoint; None before the state was loaded."""
    phase: str
    message: str
    """Message in one line."""
    waits_in: str | None = None
    """For a hang, the collective that the process waits in; None if its stack shows none."""
    state: str | None = None
    """For a hang, the process's state from the kernel, such as "T (stopped)"."""

    def line(self) -> str:
        """Describe the incident for people."""
        where = f"rank {self.rank} on {self.host}"
        when = f"in {self.phase}" if self.steps is None else f"after step {self.steps}, in {self.phase}"
        state = f" ({self.state})" if self.state and not self.state.startswith(("R", "S")) else ""
        call = f", waiting in {self.waits_in}" if self.waits_in else ""
        return f"{where} {when}: {self.kind}: {self.message}{state}{call}"


def own_incident(rank: int, host: str, kind: IncidentKind, *, steps: int | None, phase: str, message: str) -> Incident:
    """Return an incident that happens in this process now."""
    one_line = " ".join(NATIVE.sub("", message).split())[:LONGEST_MESSAGE]
    return Incident(time.time(), rank, host, os.getpid(), kind, steps, phase, one_line)


def write_incident(attempt: Path, incident: Incident) -> None:
    """Write the incident into the attempt's folder, unless its process left one already: the first is the cause."""
    path = rank_file(attempt, incident.rank, INCIDENT_FILE)
    if not is_there(path):
        write_object(path, incident)


def read_incidents(attempt: Path) -> list[Incident]:
    """Return all incidents of an attempt, by time; damaged files are passed over. That of the process that raised the
    alarm comes first, because the clocks of nodes differ. Raises OSError if the disk does not say."""
    files = [Path(entry) for entry in entries_in(attempt) if entry.name.endswith(f".{INCIDENT_FILE}")]
    records = [read_record(path, Incident) for path in files]
    incidents, first_rank = [incident for incident in records if incident is not None], _rank_of_alarm(attempt)
    return sorted(incidents, key=lambda incident: (incident.rank != first_rank, incident.time_s))


def _rank_of_alarm(attempt: Path) -> int | None:
    """Return the rank that raised the alarm; None without one."""
    if not is_there(attempt / ALARM_FILE):
        return None
    with (attempt / ALARM_FILE).open("rb") as file:
        match = ALARM.match(file.read(MOST_ALARM_BYTES))
    return None if match is None else int(match[1])


def first_cause(incidents: list[Incident]) -> Incident | None:
    """Return the incident that caused the others, or None if there are none. ``incidents``: as they are read.

    The cause is the first incident that is no lost connection. If processes hang, all of them do, and their times
    say nothing: see :func:`did_not_arrive`.
    """
    causes = [incident for incident in incidents if incident.kind not in ("lost connection", "hang")]
    if causes:
        return causes[0]
    hanging = [incident for incident in incidents if incident.kind == "hang"]
    if hanging:
        return (did_not_arrive(hanging) or hanging)[0]
    return incidents[0] if incidents else None


def did_not_arrive(hanging: list[Incident]) -> list[Incident]:
    """Return the hanging processes that the others wait for.

    The first of these criteria that singles out some processes decides: they are stopped or stuck in the kernel; behind
    the others' steps; in an earlier phase of the step; in no collective. Returns none if no criterion does.
    """
    most_steps = max((incident.steps or 0 for incident in hanging), default=0)
    last_phase = max((_phase_index(incident.phase) for incident in hanging), default=0)
    criteria: tuple[Callable[[Incident], bool], ...] = (
        lambda incident: (incident.state or "").startswith(("T", "t", "D", "Z")),
        lambda incident: (incident.steps or 0) < most_steps,
        lambda incident: _phase_index(incident.phase) < last_phase,
        lambda incident: incident.waits_in is None,
    )
    for late in criteria:
        late_ranks = [incident for incident in hanging if late(incident)]
        if 0 < len(late_ranks) < len(hanging) or (late_ranks and len(hanging) == 1):
            return late_ranks
    return []


def _phase_index(phase: str) -> int:
    names: tuple[str, ...] = PHASES
    return names.index(phase) if phase in names else 0
