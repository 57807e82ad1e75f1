"""Whether a disturbed job came out right: not lost, not stuck, nothing untrue in the status or in the job's log."""

import re
import signal
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from benchmark.run_record.file_names import job_log
from benchmark.run_record.status.status_reading import read_status
from tests.drills.drilled_run import AttemptRecord, Ended
from tests.drills.fuzz.fuzzed_job import EndedJob, StatusSample
from tests.drills.judging import log_problems, review_errors, unequal
from tests.drills.practice import SAVE_INTERVAL

GRACE_S = 30.0
"""Seconds after a fault in which the status may still say what was so before it."""
SAVE_S = 3.0
"""Seconds after a fault of the disk in which the checkpoint that follows it is written."""
TIMED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ")
UNTRUE = (
    "Traceback",
    "submit the same command again",
    "it cannot be requeued here",
    "choose another folder",
    "given up",
)
"""Words that no log has of a job that comes to its end by itself."""
NEW_FOLDER = "choose another folder for the run"


def problems_of(job: EndedJob, left: Ended, undisturbed: Ended, log_dir: Path, number: int) -> list[str]:
    """Return everything that is not as it must be."""
    if job.exit_status == 2 and not left.attempts and NEW_FOLDER in log_text(log_dir, number):
        return []  # docs/slurm.md: a new folder that cannot be made is refused at once
    found = [f"the stand-in cannot answer: {question}" for question in job.unknown[:3]]
    if job.is_stuck:
        found.append(f"stuck: no end after {job.seconds:.0f} s")
    elif left.finished != "success":
        found.append(f"lost: {left.finished or 'not finished'}, the job's exit status is {job.exit_status}")
    elif job.exit_status not in (0, -signal.SIGKILL):  # a killed script says nothing of the run
        found.append(f"the job's exit status is {job.exit_status}")
    if not found:
        # a checkpoint that could not be written is noted, and the run has ended without it
        found += [
            text for text in unequal(left, undisturbed, losses=False) if not text.startswith("last checkpoint after")
        ]
        found += [
            f"step {step}: loss {loss}" for step, loss in left.losses.items() if loss != undisturbed.losses[step]
        ][:3]
        found += log_problems(left, undisturbed, ended=True)
        found += [
            f"review: {error}" for error in sorted(review_errors(left.result) - review_errors(undisturbed.result))
        ]
        if (lost := steps_lost(left.records, job.windows)) > SAVE_INTERVAL:
            found.append(f"{lost} steps lost, at most {SAVE_INTERVAL} may be")
    return [*found, *status_problems(job, log_dir), *log_text_problems(log_text(log_dir, number))]


def log_text(log_dir: Path, number: int) -> str:
    """Return the log of the job, or Slurm's own file where the folder could not be made."""
    paths = (job_log(log_dir, str(number)), log_dir.parent / "slurm.out")
    return next((path.read_text(errors="replace") for path in paths if path.exists()), "")


def steps_lost(records: Sequence[AttemptRecord], windows: Sequence[tuple[float, float]]) -> int:
    """Return the most steps that an attempt lost, but for those done while nothing could be saved, or while a save was
    on its way."""
    worst = 0
    for before, after in pairwise(records):
        lost = [step for step in before.steps if step[0] > after.resumed_at]
        on_its_way = min((step for step in before.saves_begun if step > after.resumed_at), default=None)
        counted = [
            number
            for number, time_s, _ in lost
            if not any(begin_s <= time_s <= end_s + SAVE_S for begin_s, end_s in windows)
            and (on_its_way is None or number <= on_its_way)
        ]
        worst = max(worst, len(counted))
    return worst


def status_problems(job: EndedJob, log_dir: Path) -> Iterator[str]:
    """Yield what the status said that was not so, for longer than GRACE_S, and what it says afterwards."""
    since_s = dict[str, float]()
    told = set[str]()
    for sample in job.samples:
        problem = _untruth(sample)
        for other in [text for text in since_s if text != problem]:
            del since_s[other]
        if problem is None or any(begin_s <= sample.time_s <= end_s for begin_s, end_s in job.windows):
            since_s.clear()
            continue
        if sample.time_s - since_s.setdefault(problem, sample.time_s) > GRACE_S and problem not in told:
            told.add(problem)
            yield f"status: {problem}"
    if job.is_stuck or job.exit_status != 0:
        return
    status = read_status(log_dir)
    if status.state != "success":
        yield f"status afterwards: {status.state}"
    names = [row.name for row in status.attempts]
    if names != sorted(names):
        yield f"status afterwards: attempts in the order {', '.join(names)}"
    kinds = [row.kind for row in status.attempts]
    if kinds.count("finished") != 1 or kinds[-1] != "finished" or "running" in kinds:
        yield f"status afterwards: attempts ended as {', '.join(kinds)}"


def _untruth(sample: StatusSample) -> str | None:
    """Return in what the status differs from what is so; None if it does not."""
    text = f"{sample.status!r} while the job is {sample.job_state} with {sample.num_live_ranks} ranks"
    if sample.status == "running" and sample.num_live_ranks == 0:
        return text
    if sample.status in ("waiting", "starting again", "silent", "given up", "stopped") and sample.num_live_ranks:
        return text
    if sample.status in ("given up", "stopped") and sample.job_state != "COMPLETED":
        return text
    return None


def log_text_problems(text: str) -> Iterator[str]:
    """Yield what the log of the job says that is not so, and lines without a time."""
    for line in text.splitlines():
        if any(words in line for words in UNTRUE):
            yield f"job's log: {line}"
        elif not TIMED.match(line):
            yield f"job's log, without a time: {line}"
