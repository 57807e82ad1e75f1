"""Choose the checkpoint that a run resumes from: the newest sound one, or the requested one."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from benchmark.training.checkpoints.checkpoint_folder import (
    DamagedCheckpoint,
    checkpoint_path,
    checkpoints_folder,
    read_progress,
    set_aside,
    whole_checkpoints,
)
from benchmark.training.engine.run_progress import Progress
from foundation.errors import InputError
from foundation.json_files import UNREADABLE, read_json
from foundation.outputs.publish import write_text


@dataclass(frozen=True)
class CheckpointChoice:
    steps: int | None
    """Steps of the checkpoint; None if there is none and the run begins at the initial checkpoint."""
    progress: Progress | None
    """Progress stored in that checkpoint."""
    asked_for: bool
    """The checkpoint was requested by ``--resume-from``: no other is used, and newer ones are set aside once it is
    loaded."""
    lines: tuple[str, ...]
    """Messages for people about damaged checkpoints that were found and set aside."""


def choose_checkpoint(run_dir: Path, resume_from: int | None, launch: str | None) -> CheckpointChoice:
    """Choose the checkpoint for a starting run; called on rank 0 only.

    ``launch`` names what this start has in common with later ones by the same launcher; ``resume_from`` is applied once
    in a launch. Raises InputError if the requested checkpoint does not exist.
    """
    if resume_from is None or (launch is not None and _met(run_dir) == {"steps": resume_from, "launch": launch}):
        return newest_readable(run_dir)
    there = whole_checkpoints(run_dir)
    if resume_from not in there:
        found = ", ".join(map(str, there)) or "none"
        raise InputError(f"{checkpoints_folder(run_dir)}: no checkpoint of {resume_from} steps; there are: {found}")
    return CheckpointChoice(resume_from, read_progress(checkpoint_path(run_dir, resume_from)), True, ())


def newest_readable(run_dir: Path) -> CheckpointChoice:
    """Return the newest checkpoint whose progress can be read, after setting newer ones aside."""
    lines: list[str] = []
    for steps in reversed(whole_checkpoints(run_dir)):
        try:
            progress = read_progress(checkpoint_path(run_dir, steps))
        except DamagedCheckpoint as damage:
            lines.append(set_aside_damaged(run_dir, steps, damage))
        else:
            return CheckpointChoice(steps, progress, False, tuple(lines))
    return CheckpointChoice(None, None, False, tuple(lines))


def next_older(run_dir: Path, steps: int, damage: DamagedCheckpoint) -> CheckpointChoice:
    """Set a checkpoint that proved damaged as it was loaded aside, and choose again."""
    line = set_aside_damaged(run_dir, steps, damage)
    choice = newest_readable(run_dir)
    return replace(choice, lines=(line, *choice.lines))


def set_aside_damaged(run_dir: Path, steps: int, damage: DamagedCheckpoint) -> str:
    """Move a damaged checkpoint out of the way; return one line for people."""
    place = set_aside(run_dir, [steps], why="damaged")
    older = [found for found in whole_checkpoints(run_dir) if found < steps]
    then = f"the one after {older[-1]} steps" if older else "the initial checkpoint"
    what = f"the checkpoint after {steps} steps is damaged ({damage.files()})"
    return f"{what}: set aside in {place}, going on from {then}"


def go_back(run_dir: Path, steps: int, launch: str | None) -> None:
    """Set checkpoints newer than the requested one aside, now that it is loaded, and remember that the request is
    met."""
    set_aside(run_dir, [found for found in whole_checkpoints(run_dir) if found > steps], why=f"back to {steps}")
    if launch is not None:
        write_text(_met_path(run_dir), json.dumps({"steps": steps, "launch": launch}) + "\n")


def _met_path(run_dir: Path) -> Path:
    return checkpoints_folder(run_dir) / "resumed_from.json"


def _met(run_dir: Path) -> object:
    try:
        return read_json(_met_path(run_dir), object)
    except UNREADABLE:
        return None
