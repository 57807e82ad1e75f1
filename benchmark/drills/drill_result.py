"""Whether what came of a drill is what must come of it, and the figures of it."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from benchmark.drills.aftermath import Aftermath, AttemptRecord, Struck
from benchmark.drills.catalogue.drill import Drill
from benchmark.drills.drilled_run import Ended

ONCE = ("init_start", "init_stop", "run_start", "run_stop")
"""In the log of a run that came to an end of its own."""
SHOWN = 3
"""Of a list of differences."""


@dataclass(frozen=True)
class DrillResult:
    """A row of the table."""

    name: str
    outcome: str
    """healed, noted or stopped, as it was; "unfinished" where it was none of them."""
    problems: tuple[str, ...]
    """Why it is not right; empty where it is."""
    attempts: int
    lost_steps: int
    """Done more than once, over all attempts."""
    detected_s: float | None
    """From the fault until a process or a watchdog said so; None where nobody had to."""
    next_loss_s: float | None
    """From a fault to the next loss that was new, the longest of them; None where there was none."""
    seconds: float
    """Of the whole run."""
    equal: bool | None
    """Weights, moments, losses and evaluations are those of the undisturbed run; None where nothing was compared."""
    faults: str
    """What was injected."""
    words: str
    """Of the first decision, or of the end."""

    @property
    def right(self) -> bool:
        return not self.problems


def judge(drill: Drill, ended: Ended, undisturbed: Aftermath, *, save_interval: int, faults: str) -> DrillResult:
    """Compare a drill's run with the undisturbed one, and with what must come of it."""
    left = ended.aftermath
    differences = unequal(left, undisturbed, losses=drill.losses_known)
    outcome = outcome_of(ended, equal=not differences)
    problems = [] if outcome == drill.outcome else [f"{outcome}, expected {drill.outcome}"]
    problems += _missing_words(drill, ended)
    ended_by_itself = outcome != "stopped" or left.finished is not None
    problems += log_problems(left, undisturbed if drill.outcome == "healed" else None, ended=ended_by_itself)
    if drill.outcome == "healed":
        problems += differences
    if drill.outcome != "stopped":
        problems += [f"evidence: {deviation}" for deviation in left.evidence[:SHOWN]]
    if not drill.may_not_strike and len(left.struck) < len({(fault.at, fault.act) for fault in drill.faults}):
        problems.append("a fault did not strike")
    if drill.attempts is not None and len(left.attempts) != drill.attempts:
        problems.append(f"{len(left.attempts)} attempts, expected {drill.attempts}")
    if drill.status is not None and ended.decisions[-1].status != drill.status:
        problems.append(f"status {ended.decisions[-1].status}, expected {drill.status}")
    lost, beyond = lost_steps(left.records)
    if outcome == "healed" and beyond > drill.lost_saves * save_interval:
        problems.append(f"{beyond} steps lost, at most {drill.lost_saves * save_interval} may be")
    detected_s = detection_s(left)
    if drill.most_detection_s is not None and (detected_s is None or detected_s > drill.most_detection_s):
        problems.append(f"detected after {detected_s} s, at most {drill.most_detection_s:g} s may be")
    return DrillResult(
        name=drill.name,
        outcome=outcome,
        problems=tuple(problems),
        attempts=len(left.attempts),
        lost_steps=lost,
        detected_s=detected_s,
        next_loss_s=next_loss_s(left),
        seconds=ended.seconds,
        equal=None if outcome == "stopped" else not differences,
        faults=faults,
        words=ended.decisions[0].reason if len(left.attempts) < 2 else _first_reason(left),
    )


def outcome_of(ended: Ended, *, equal: bool) -> str:
    """``equal``: to the undisturbed run."""
    left = ended.aftermath
    if ended.decisions[-1].action == "stop" or left.finished not in (None, "success", "completed"):
        return "stopped"
    if left.finished is None:
        return "unfinished"
    return "healed" if equal else "noted"


def unequal(left: Aftermath, undisturbed: Aftermath, *, losses: bool = True) -> list[str]:
    """What differs from the undisturbed run, to the bit."""
    found = []
    if left.steps != undisturbed.steps:
        found.append(f"last checkpoint after {left.steps} steps, expected {undisturbed.steps}")
    else:
        names = [name for name in undisturbed.arrays if left.arrays.get(name) != undisturbed.arrays[name]]
        if names or left.arrays.keys() != undisturbed.arrays.keys():
            found.append(f"{len(names)} of {len(undisturbed.arrays)} arrays differ, {', '.join(names[:SHOWN])}")
    if left.evaluations != undisturbed.evaluations:
        found.append(f"evaluations {left.evaluations}, expected {undisturbed.evaluations}")
    if losses and left.losses != undisturbed.losses:
        both = left.losses.keys() | undisturbed.losses.keys()
        steps = sorted(step for step in both if left.losses.get(step) != undisturbed.losses.get(step))
        found.append(f"losses differ after steps {steps[:SHOWN]}")
    return found


def log_problems(left: Aftermath, undisturbed: Aftermath | None, *, ended: bool) -> list[str]:
    """What is not as it must be in the MLPerf log of a disturbed run; ``ended``: it came to an end of its own."""
    found: list[str] = []
    counts = Counter(event.key for event in left.log)
    found += [f"{counts[key]} {key}, expected 1" for key in ONCE if ended and counts[key] != 1]
    if not ended and counts["run_stop"] > 1:
        found.append(f"{counts['run_stop']} run_stop, expected 1 at most")
    times = [event.time_ms for event in left.log]
    if times != sorted(times):
        found.append("times in the log go back")
    if undisturbed is not None and left.log_lines() != undisturbed.log_lines():
        found.append("lines of the log differ")
    return found


def lost_steps(records: Sequence[AttemptRecord]) -> tuple[int, int]:
    """Steps that were done and lost: over all attempts; the most in one, but for those done while a save was on its
    way, which no interval can spare."""
    total = worst = 0
    for before, after in pairwise(records):
        done = max([before.resumed_at, *(step for step, _, _ in before.steps)])
        lost = max(0, done - after.resumed_at)
        on_its_way = max([step for step in before.saves_begun if step > after.resumed_at], default=done)
        total, worst = total + lost, max(worst, lost - (done - on_its_way))
    return total, worst


def detection_s(left: Aftermath) -> float | None:
    """From the latest fault before the first incident until then."""
    told_s = min((attempt.cause.time_s for attempt in left.attempts if attempt.cause is not None), default=None)
    before = [struck.time_s for struck in left.struck if told_s is not None and struck.time_s <= told_s]
    return told_s - max(before) if told_s is not None and before else None


def next_loss_s(left: Aftermath) -> float | None:
    """Where a fault ended its attempt, the next loss is of a later one."""
    found = [seconds for struck in left.struck if (seconds := _next_loss_after(struck, left)) is not None]
    return max(found, default=None)


def _next_loss_after(struck: Struck, left: Aftermath) -> float | None:
    ended = len(left.attempts) > struck.attempt
    later = [record for record in left.records if record.attempt > struck.attempt or not ended]
    times = [time_s for record in later for _, time_s, _ in record.steps if time_s > struck.time_s]
    return min(times) - struck.time_s if times else None


def _missing_words(drill: Drill, ended: Ended) -> list[str]:
    said = "\n".join([ended.aftermath.said, *(decision.reason for decision in ended.decisions)])
    return [f"nobody said {words!r}" for words in drill.words if not re.search(words, said)]


def _first_reason(left: Aftermath) -> str:
    return next((attempt.end.reason for attempt in left.attempts if attempt.end is not None), "")
