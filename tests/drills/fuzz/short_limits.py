"""Limits of the launcher in the job's copy of the code: where faults are short, they are short in proportion.

A requeued job waits for a lease of two minutes, and a stopped srun for a quarter of an hour. Without this a run of a
few seconds with faults of a few seconds would wait for most of its time.
"""

from pathlib import Path

from tests.drills.fuzz.drawn_faults import LONGEST_S

LIMITS = (
    ("benchmark/run_record/lease.py", "JOB_S, MACHINE_S = {}, 30.0", 120.0),
    ("benchmark/launch/slurm/end_signs.py", "ALARM_S = {}\n", 240.0),
    ("benchmark/launch/slurm/end_signs.py", "LAST_SAVE_S = {}\n", 840.0),
    ("benchmark/launch/slurm/job.py", "STEP_START_S = {}\n", 900.0),
    ("run_gpt3.sh", "while sleep {}", 30),
)
"""Files of the code, their lines, and the seconds in them."""
LEAST_PART = 0.15
"""Smallest part of the limits: a busy machine renews a lease of 18 s in time, and a shorter one perhaps not."""


def limits_part(longest_s: float) -> float:
    """Return the part of their lengths that limits have. ``longest_s``: most seconds of a fault."""
    return min(1.0, max(LEAST_PART, longest_s / LONGEST_S))


def shorten_limits(code: Path, longest_s: float) -> None:
    for name, line, seconds in LIMITS:
        path = code / name
        text = path.read_text()
        assert line.format(seconds) in text, f"{name} has no line {line.format(seconds)!r}"
        path.write_text(text.replace(line.format(seconds), line.format(limits_part(longest_s) * seconds)))
