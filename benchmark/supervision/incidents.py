"""What went wrong on a process: written by it or by its watchdog, read by the launcher.

One fault makes every process fail, for the others lose their partner; what people and the launcher want is the first
cause. Kinds in LOST are consequences and only count where there is nothing else.
"""

import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from benchmark.supervision.attempt_folder import rank_file
from stage.publish import write_text

IncidentKind = Literal[
    "exception", "out of memory", "device", "disk", "killed", "hang", "input", "check", "lost connection"
]
"""device: an error of the accelerator or its links. killed: gone without a word, as by kill -9 or for lack of the
host's memory. hang: no sign of life for too long. input: bad input that a person has to mend. check: a check that ran and
failed, such as copies that differ. lost connection: another process went away."""


@dataclass(frozen=True)
class Incident:
    time_s: float
    """Seconds since the epoch, by the host's clock."""
    rank: int
    host: str
    pid: int
    kind: IncidentKind
    steps: int | None
    """Optimizer steps since the initial checkpoint that were done; None before the state was there."""
    phase: str
    message: str
    """One line."""

    def line(self) -> str:
        """For people."""
        where = f"rank {self.rank} on {self.host}"
        when = f"in {self.phase}" if self.steps is None else f"after step {self.steps}, in {self.phase}"
        return f"{where} {when}: {self.kind}: {self.message}"


def own_incident(rank: int, kind: IncidentKind, *, steps: int | None, phase: str, message: str) -> Incident:
    """One that happens on this host now."""
    one_line = " ".join(message.split())
    return Incident(time.time(), rank, socket.gethostname(), os.getpid(), kind, steps, phase, one_line)


def write_incident(attempt: Path, incident: Incident) -> None:
    """Leave it in the attempt's folder unless the process has left one already: the first is the cause."""
    path = rank_file(attempt, incident.rank, "incident.json")
    if not path.exists():
        write_text(path, json.dumps(asdict(incident)) + "\n")


def read_incidents(attempt: Path) -> list[Incident]:
    """All of an attempt, the first in time first; files that are not what was written are passed over."""
    found = []
    for path in sorted(attempt.glob("rank_*.incident.json")):
        try:
            found.append(Incident(**json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError, TypeError):
            continue
    return sorted(found, key=lambda incident: incident.time_s)


def first_cause(incidents: list[Incident]) -> Incident | None:
    """The first that is not the consequence of another one's; the first at all where all are."""
    own = [incident for incident in incidents if incident.kind != "lost connection"]
    return min(own or incidents, key=lambda incident: incident.time_s, default=None)
