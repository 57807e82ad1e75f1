"""Whether what came of a drill is what must come of it, and the figures of it."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmark.judging.review.verdict import review
from tests.drills.drill_table import Drill
from tests.drills.drilled_run import AttemptRecord, Ended

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
    faults: str
    """What was injected."""
    words: str
    """Of the first decision, or of the end."""


def judge(drill: Drill, left: Ended, undisturbed: Ended, *, save_interval: int, faults: str) -> DrillResult:
    """Compare a drill's run with the undisturbed one, and with what must come of it."""
    differences = unequal(left, undisturbed, losses=drill.losses_known)
    outcome = outcome_of(left, equal=not differences)
    problems = [] if outcome == drill.outcome else [f"{outcome}, expected {drill.outcome}"]
    said = "\n".join([left.said, *(decision.reason for decision in left.decisions)])
    problems += [f"nobody said {words!r}" for words in drill.words if not re.search(words, said)]
    healed = drill.outcome == "healed"
    problems += log_problems(left, undisturbed if healed else None, ended=left.finished is not None)
    if healed:
        problems += differences
        known = review_errors(undisturbed.result)
        problems += [f"review: {error}" for error in sorted(review_errors(left.result) - known)[:SHOWN]]
    if not drill.may_not_strike and len(left.struck) < len({(fault.at, fault.act) for fault in drill.faults}):
        problems.append("a fault did not strike")
    if drill.attempts is not None and len(left.attempts) != drill.attempts:
        problems.append(f"{len(left.attempts)} attempts, expected {drill.attempts}")
    if drill.status is not None and left.decisions[-1].status != drill.status:
        problems.append(f"status {left.decisions[-1].status}, expected {drill.status}")
    lost, beyond = lost_steps(left.records)
    if outcome == "healed" and beyond > drill.lost_saves * save_interval:
        problems.append(f"{beyond} steps lost, at most {drill.lost_saves * save_interval} may be")
    detected_s = detection_s(left)
    if drill.most_detection_s is not None and (detected_s is None or detected_s > drill.most_detection_s):
        problems.append(f"detected after {detected_s} s, at most {drill.most_detection_s:g} s may be")
    reason = next((attempt.end.reason for attempt in left.attempts if attempt.end is not None), "")
    return DrillResult(
        drill.name,
        outcome,
        tuple(problems),
        len(left.attempts),
        lost,
        detected_s,
        next_loss_s(left),
        left.seconds,
        faults,
        reason,
    )


def review_errors(log: Path) -> set[str]:
    """Rules by which the review refuses a run. The benchmark of the drills is none that it knows: what it says of the
    undisturbed run, too, does not count there."""
    found = review([log]).subjects
    return {finding.rule for subject in found for finding in subject.of("error")}


def outcome_of(left: Ended, *, equal: bool) -> str:
    """``equal``: to the undisturbed run."""
    last = left.decisions[-1]
    if last.action == "stop" or "until the disk works" in last.reason or left.finished not in (None, "success"):
        return "stopped"
    if left.finished is None:
        return "unfinished"
    return "healed" if equal else "noted"


def unequal(left: Ended, undisturbed: Ended, *, losses: bool = True) -> list[str]:
    """What differs from the undisturbed run, to the bit."""
    found = []
    if left.steps != undisturbed.steps:
        found.append(f"last checkpoint after {left.steps} steps, expected {undisturbed.steps}")
    elif left.arrays != undisturbed.arrays:
        names = [name for name in undisturbed.arrays if left.arrays.get(name) != undisturbed.arrays[name]]
        found.append(f"{len(names)} of {len(undisturbed.arrays)} arrays differ, {', '.join(names[:SHOWN])}")
    if left.evaluations != undisturbed.evaluations:
        found.append(f"evaluations {left.evaluations}, expected {undisturbed.evaluations}")
    if losses and left.losses != undisturbed.losses:
        both = left.losses.keys() | undisturbed.losses.keys()
        steps = sorted(step for step in both if left.losses.get(step) != undisturbed.losses.get(step))
        found.append(f"losses differ after steps {steps[:SHOWN]}")
    return found


def log_problems(left: Ended, undisturbed: Ended | None, *, ended: bool) -> list[str]:
    """What is not as it must be in the MLPerf log of a disturbed run; ``ended``: it came to an end of its own."""
    counts = Counter(event.key for event in left.log)
    found = [f"{counts[key]} {key}, expected 1" for key in ONCE if ended and counts[key] != 1]
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


def detection_s(left: Ended) -> float | None:
    """From the latest fault before the first incident until then."""
    detected_s = min((attempt.cause.time_s for attempt in left.attempts if attempt.cause is not None), default=None)
    before = [struck["time_s"] for struck in left.struck if detected_s is not None and struck["time_s"] <= detected_s]
    return detected_s - max(before) if detected_s is not None and before else None


def next_loss_s(left: Ended) -> float | None:
    """From a fault to the next loss, the longest; where a fault ended its attempt, that is one of a later attempt."""
    found = []
    for struck in left.struck:
        ended = len(left.attempts) > struck["attempt"]
        later = [record for record in left.records if record.attempt > struck["attempt"] or not ended]
        times = [time_s for record in later for _, time_s, _ in record.steps if time_s > struck["time_s"]]
        found += [min(times) - struck["time_s"]] if times else []
    return max(found, default=None)
