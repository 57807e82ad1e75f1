"""Faults of a job as data, and two of them drawn by a seed: of the disk below LOG_DIR, a process, Slurm's answers."""

import math
from dataclasses import dataclass
from random import Random
from typing import Literal

from tests.drills.practice import STEPS

ROLES = ("script", "launcher", "rank 0", "rank 1", "watchdog 0", "watchdog 1", "sentinel", "command")
"""Kinds of a job's processes, as disk_faults.c numbers them. command: one of Slurm's, such as srun."""
ANY_ROLE = "any"
CALLS = {"launcher": 450, "rank 0": 330, "rank 1": 28, "watchdog 0": 3, "watchdog 1": 3, "sentinel": 160, ANY_ROLE: 970}
"""Calls by path below LOG_DIR in a run that nothing disturbs, about, by the role that makes them."""
LONGEST_S = 120.0
JOB_S = 8.0
"""Seconds that the job takes without a fault."""
FOR_EVER_S = 0.0

Errors = Literal["EIO", "ENOTCONN", "ESTALE", "ENOSPC", "EPERM", "wait"]


@dataclass(frozen=True)
class Moment:
    """The time at which a fault begins."""

    kind: Literal["calls", "step", "seconds"]
    number: float
    """Calls below LOG_DIR that the role has made; optimizer steps done; seconds since the job's first start."""
    role: str = ANY_ROLE
    """The role whose calls count."""

    def words(self) -> str:
        if self.kind == "calls":
            return f"at call {self.number:.0f} of {self.role}"
        return f"after step {self.number:.0f}" if self.kind == "step" else f"after {self.number:g} s"


@dataclass(frozen=True)
class DiskFault:
    """Calls on files below LOG_DIR fail, or wait."""

    error: Errors
    """An errno's name; "wait": the calls return once the fault is over."""
    calls: Literal["reads", "writes", "all"]
    roles: tuple[str, ...]
    seconds: float
    moment: Moment

    def words(self) -> str:
        who = "all processes" if len(self.roles) == len(ROLES) else ", ".join(self.roles)
        subject = "reads and writes" if self.calls == "all" else self.calls
        return f"{subject} of {who}: {self.error} for {self.seconds:g} s {self.moment.words()}"


@dataclass(frozen=True)
class ProcessFault:
    """A process of the job is killed or stopped."""

    act: Literal["kill", "stop"]
    role: str
    seconds: float
    """Seconds until a stopped process goes on; FOR_EVER_S: it does not."""
    moment: Moment

    def words(self) -> str:
        length = f" for {self.seconds:g} s" if self.act == "stop" and self.seconds else ""
        return f"{self.act} {self.role}{length} {self.moment.words()}"


@dataclass(frozen=True)
class AnswerFault:
    """Commands of Slurm fail, or give no answer."""

    how: Literal["refuses", "silent", "lost"]
    """refuses: nothing is done. silent: the command waits until the fault is over. lost: it is done, and reported as
    failed."""
    command: str
    """Name of a command; "all"."""
    seconds: float
    moment: Moment

    def words(self) -> str:
        return f"Slurm {self.how} ({self.command}) for {self.seconds:g} s {self.moment.words()}"


JobFault = DiskFault | ProcessFault | AnswerFault


def drawn(seed: int, longest_s: float = LONGEST_S) -> tuple[JobFault, ...]:
    """Return the two faults of a seed. ``longest_s``: most seconds of one."""
    random = Random(f"job {seed}")
    return tuple(
        random.choices((_disk_fault, _process_fault, _answer_fault), (5, 3, 2))[0](random, longest_s) for _ in range(2)
    )


def _seconds(random: Random, shortest_s: float, longest_s: float) -> float:
    """Short times are as frequent as long ones."""
    return round(math.exp(random.uniform(math.log(shortest_s), math.log(longest_s))), 1)


def _moment(random: Random, role: str = ANY_ROLE) -> Moment:
    kind = random.choice(("calls", "step", "seconds"))
    if kind == "calls" and role in CALLS:
        return Moment("calls", random.randint(1, CALLS[role]), role)
    if kind == "step":
        return Moment("step", random.randint(1, STEPS))
    return Moment("seconds", round(random.uniform(0, JOB_S), 2))


def _disk_fault(random: Random, longest_s: float) -> DiskFault:
    error = random.choice(("EIO", "ENOTCONN", "ESTALE", "ENOSPC", "EPERM", "wait", "wait"))
    calls = "writes" if error in ("ENOSPC", "EPERM") else random.choice(("reads", "writes", "all", "all"))
    roles = random.choice((ROLES, ROLES, ROLES, ("launcher",), ("rank 0", "rank 1", "watchdog 0", "watchdog 1")))
    seconds = _seconds(random, 1, longest_s) if error == "wait" else _seconds(random, 0.3, min(40, longest_s))
    moment = _moment(random, random.choice((ANY_ROLE, *roles)) if len(roles) < len(ROLES) else ANY_ROLE)
    return DiskFault(error, calls, roles, seconds, moment)  # type: ignore[arg-type]


def _process_fault(random: Random, longest_s: float) -> ProcessFault:
    role = random.choice(ROLES)
    act = random.choice(("kill", "kill", "stop"))
    seconds = random.choice((FOR_EVER_S, _seconds(random, 1, longest_s))) if act == "stop" else FOR_EVER_S
    if act == "stop" and role == "script":  # its parent is Slurm's daemon, which does not look after it
        seconds = seconds or 1.0
    moment = _moment(random, role)
    if act == "kill" and role == "script" and moment.kind == "seconds":  # not before there is anything to look after it
        moment = Moment("step", random.randint(1, STEPS))
    return ProcessFault(act, role, seconds, moment)  # type: ignore[arg-type]


def _answer_fault(random: Random, longest_s: float) -> AnswerFault:
    how, command = random.choice(("refuses", "silent", "lost")), random.choice(("all", "scontrol", "squeue", "srun"))
    return AnswerFault(how, command, _seconds(random, 1, longest_s), _moment(random))  # type: ignore[arg-type]
