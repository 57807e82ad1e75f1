"""Going back after a spike: what the end of one start leaves for the next one.

    RUN_DIR/rollback.json    every rollback of the run, the oldest first, and whether the last one's move is done

A run that noticed a spike writes the file and ends with exit status 75; the next start moves the checkpoints beyond
aside, when surely none is being written, and goes on from the one before the spike. Samples left out and the lowered
rate are ranges of samples and steps in ``Progress.rollbacks``, from which every step computes where it reads and how
fast it learns. So it makes no difference how often a start is repeated, or where it was killed.
"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import torch.distributed as dist

from benchmark.config.run_config import RunConfig
from benchmark.training.checkpoints.checkpoint_folder import set_aside, whole_checkpoints
from benchmark.training.engine.run_progress import Progress, Rollback
from stage.errors import InputError
from stage.json_files import DAMAGED, read_json
from stage.outputs.publish import write_text

WHY = "spike"
NEAR_STEPS = 64
"""Spikes that begin no farther apart are at the same place."""
MOST_AT_A_PLACE = 2
"""Rollbacks; the next spike there ends the run."""
MOST_BYTES = 1 << 20
"""Of the file: some thousands of rollbacks."""


def rollback_path(run_dir: Path) -> Path:
    return run_dir / "rollback.json"


def read_rollbacks(run_dir: Path) -> list[Rollback]:
    """All of the run, the oldest first. Raises InputError where the file is not what was written."""
    return _read(run_dir)[0]


def plan_rollback(config: RunConfig, progress: Progress, began: int) -> Rollback:
    """The way back from the spike that ``began`` (steps that were done after its first one) and was noticed now.

    To the newest checkpoint before the spike, or the initial one where there is none. Policy skip-data leaves out the
    samples from there to here; lower-rate learns more slowly for a while.
    """
    to_steps = max((steps for steps in whole_checkpoints(config.run_dir) if steps < began), default=0)
    back_there = progress.samples_after(to_steps)
    if config.on_spike == "skip-data":
        return Rollback(to_steps, began, back_there, progress.consumed_samples)
    until = to_steps + config.spike_rate_steps
    return Rollback(to_steps, began, back_there, back_there, config.spike_rate_factor, until)


def describe_rollback(rollback: Rollback) -> str:
    """One line for people: where the run goes back to, and what it does differently from there."""
    back = f"back to {rollback.to_steps} steps, before the spike that began with step {rollback.spike_steps}"
    left_out = rollback.end_sample - rollback.first_sample
    if left_out:
        return f"{back}; {left_out:,} samples from {rollback.first_sample:,} on are left out"
    return f"{back}; the learning rate is {rollback.rate_factor:g} times as high until {rollback.rate_until} steps"


def is_hopeless(progress: Progress, began: int) -> bool:
    """Whether the run went back often enough from the place where a spike began again."""
    near = [one for one in progress.rollbacks if abs(one.spike_steps - began) <= NEAR_STEPS]
    return len(near) >= MOST_AT_A_PLACE


def write_rollback(run_dir: Path, rollback: Rollback) -> None:
    """Make the next start go back. For one process."""
    _write(run_dir, [*read_rollbacks(run_dir), rollback], done=False)


def finish_rollback(run_dir: Path) -> None:
    """Move aside what the last rollback goes back from, unless that is done. For one process, before any other looks at
    the checkpoints."""
    rollbacks, done = _read(run_dir)
    if not done:
        set_aside(run_dir, after=rollbacks[-1].to_steps, why=WHY)
        _write(run_dir, rollbacks, done=True)


def require_rollbacks_allowed(config: RunConfig) -> None:
    """Raise InputError where a run that went back would go on as one of the closed division."""
    if config.submission.submission_division == "closed" and read_rollbacks(config.run_dir):
        raise InputError(
            f"{rollback_path(config.run_dir)}: the run went back after a spike, which the closed division does not "
            "allow; give --submission-division open, or choose another --run-dir"
        )


def take_over(progress: Progress, rollbacks: Sequence[Rollback]) -> list[Rollback]:
    """Let ``progress``, as a checkpoint or the beginning of the run has it, know those that came after it.

    Returns those it did not know.
    """
    new = [one for one in rollbacks if one.to_steps >= progress.steps and one not in progress.rollbacks]
    progress.rollbacks.extend(new)
    return new


def agreed_rollbacks(run_dir: Path) -> list[Rollback]:
    """Those that rank 0 reads. Collective."""
    found: list[list[Rollback] | None] = [read_rollbacks(run_dir) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found, src=0)
    return found[0] or []


def _read(run_dir: Path) -> tuple[list[Rollback], bool]:
    path = rollback_path(run_dir)
    try:
        content = read_json(path, dict, largest=MOST_BYTES)
        rollbacks = [Rollback(**entry) for entry in content["rollbacks"]]
        if not all(isinstance(value, int | float) for one in rollbacks for value in dataclasses.astuple(one)):
            raise ValueError("a field is not a number")
        return rollbacks, bool(content["done"]) or not rollbacks
    except FileNotFoundError:
        return [], True
    except (InputError, *DAMAGED) as error:
        raise InputError(
            f"{path}: not what a run writes ({error}); delete it to continue without the rollbacks it lists"
        ) from error


def _write(run_dir: Path, rollbacks: Sequence[Rollback], *, done: bool) -> None:
    content = {"rollbacks": [dataclasses.asdict(one) for one in rollbacks], "done": done}
    write_text(rollback_path(run_dir), json.dumps(content, indent=1) + "\n")
