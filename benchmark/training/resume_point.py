"""Choose the place where a run resumes, once, and fill the state from it.

Rank 0 chooses as it opens the run's folder: the checkpoint that ``--resume-from`` requests, or else the newest one, or
else the initial checkpoint. Once the processes have met, they verify its files together; a damaged checkpoint is set
aside, and rank 0 chooses an older one. The log and the state are then given the same resume point.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmark.run_record.checkpoint_folder import (
    DamagedCheckpoint,
    progress_as_json,
    progress_from_json,
    read_progress,
    set_aside,
)
from benchmark.run_record.checkpoint_list import whole_checkpoints
from benchmark.run_record.events.mlperf_log import LogMark, MlperfLog
from benchmark.run_record.file_names import checkpoint_path, checkpoints_folder
from benchmark.run_record.phases import PhaseLog
from benchmark.run_record.run_progress import Progress
from benchmark.training.checkpoints.checkpoint_reader import fill_state, verify_checkpoint
from benchmark.training.engine.distributed import World
from benchmark.training.engine.rank_messages import message_from_rank_0
from benchmark.training.engine.train_state import TrainState, begin_state
from foundation.errors import InputError
from foundation.file_formats.json_files import UNREADABLE, read_json
from foundation.outputs.publish import write_text


@dataclass(frozen=True)
class ResumePoint:
    """The place where a run begins or resumes."""

    progress: Progress
    """The run's progress at that place, with this restart counted."""
    checkpoint: int | None = None
    """Steps of the run's own checkpoint; None: the initial checkpoint."""
    requested: bool = False
    """The checkpoint was requested by ``--resume-from``: no other is used, and newer ones are set aside once it is
    loaded."""
    log_mark: LogMark | None = None
    """Position from which the MLPerf log continues; None: the log begins. Of rank 0 only."""
    reasons: tuple[str, ...] = ()
    """Messages about damaged checkpoints that were set aside for this choice. Of rank 0 only."""


def choose_resume_point(
    run_dir: Path, start: Progress, mlperf_log: MlperfLog, *, resume_from: int | None = None, launch: str | None = None
) -> ResumePoint:
    """Choose for a starting run. Called on rank 0.

    ``start``: the progress of a run that begins. ``launch`` names a property of this start that later starts by the
    same launcher share; ``resume_from`` is applied once in a launch. Raises InputError if the requested checkpoint does
    not exist.
    """
    if resume_from is None or (launch is not None and _fulfilled(run_dir) == {"steps": resume_from, "launch": launch}):
        return _newest(run_dir, start, mlperf_log)
    checkpoints = whole_checkpoints(run_dir)
    if resume_from not in checkpoints:
        listed = ", ".join(map(str, checkpoints)) or "none"
        raise InputError(f"{checkpoints_folder(run_dir)}: no checkpoint of {resume_from} steps; there are: {listed}")
    return _at_checkpoint(resume_from, read_progress(checkpoint_path(run_dir, resume_from)), requested=True)


def agree_on_resume_point(
    chosen: ResumePoint | None,
    run_dir: Path,
    world: World,
    mlperf_log: MlperfLog | None,
    phases: PhaseLog,
    patience_s: float = 0.0,
) -> ResumePoint:
    """Return the resume point of all processes, whose checkpoint is sound. Collective.

    ``chosen`` and ``mlperf_log``: of rank 0; None on other ranks. ``patience_s``: as in :func:`verify_checkpoint`.
    Raises DamagedCheckpoint if a requested checkpoint is damaged.
    """
    while True:
        point = _shared(chosen)
        if point.checkpoint is None:
            return point
        try:
            verify_checkpoint(checkpoint_path(run_dir, point.checkpoint), world, patience_s)
            return point
        except DamagedCheckpoint as damage:
            if point.requested:
                raise
            if mlperf_log is not None:
                chosen = older_point(run_dir, point, damage, mlperf_log)
            phases.enter("load", -1)


def older_point(run_dir: Path, point: ResumePoint, damage: DamagedCheckpoint, mlperf_log: MlperfLog) -> ResumePoint:
    """Set the checkpoint of ``point`` aside, which proved damaged as it was verified, and choose again."""
    assert point.checkpoint is not None
    progress = point.progress
    start = Progress(progress.seed, progress.start_samples, progress.global_batch_size, progress.seq_length)
    return _newest(run_dir, start, mlperf_log, [set_aside_damaged(run_dir, point.checkpoint, damage)])


def restore_state(state: TrainState, run_dir: Path, initial: Path | None, point: ResumePoint) -> str:
    """Fill the state from the resume point, and describe its origin in words. Collective.

    ``initial``: the initial checkpoint. Raises InputError if it is needed and was not named.
    """
    state.progress = point.progress
    if point.checkpoint is None:
        return f"starting from {begin_state(state, initial)}"
    path = checkpoint_path(run_dir, point.checkpoint)
    fill_state(state, path)
    return f"continuing from {path}"


def fulfil_request(run_dir: Path, point: ResumePoint, launch: str | None) -> None:
    """After the state is loaded from a requested checkpoint, set newer ones aside and remember that the request is met.
    Called on rank 0."""
    if not point.requested or point.checkpoint is None:
        return
    steps = point.checkpoint
    newer = [number for number in whole_checkpoints(run_dir) if number > steps]
    set_aside(run_dir, newer, why=f"back to {steps}")
    if launch is not None:
        write_text(_request_path(run_dir), json.dumps({"steps": steps, "launch": launch}) + "\n")


def set_aside_damaged(run_dir: Path, steps: int, damage: DamagedCheckpoint) -> str:
    """Move a damaged checkpoint out of the way; return one line for people."""
    folder = set_aside(run_dir, [steps], why="damaged")
    older = [number for number in whole_checkpoints(run_dir) if number < steps]
    successor = f"the checkpoint after {older[-1]} steps" if older else "the initial checkpoint"
    problem = f"the checkpoint after {steps} steps is damaged ({damage.files()})"
    return f"{problem}: set aside in {folder}; the run resumes from {successor}"


def _newest(run_dir: Path, start: Progress, mlperf_log: MlperfLog, reasons: Sequence[str] = ()) -> ResumePoint:
    """Return the newest checkpoint whose progress can be read, after setting newer ones aside.

    If all checkpoints were damaged, the run begins again, and the clock of its log goes on.
    """
    reasons = list(reasons)
    for steps in reversed(whole_checkpoints(run_dir)):
        try:
            progress = read_progress(checkpoint_path(run_dir, steps))
        except DamagedCheckpoint as damage:
            reasons.append(set_aside_damaged(run_dir, steps, damage))
        else:
            return replace(_at_checkpoint(steps, progress), reasons=tuple(reasons))
    started = mlperf_log.started_clock() if reasons else None
    if started is None:
        return ResumePoint(start, reasons=tuple(reasons))
    mark, restarts = started
    return ResumePoint(replace(start, restarts=restarts + 1), log_mark=mark, reasons=tuple(reasons))


def _at_checkpoint(steps: int, saved: Progress, *, requested: bool = False) -> ResumePoint:
    mark = LogMark(saved.mlperf_log_bytes, tuple(saved.mlperf_log_rest))
    return ResumePoint(replace(saved, restarts=saved.restarts + 1), steps, requested, mark)


def _shared(point: ResumePoint | None) -> ResumePoint:
    """Return rank 0's choice on all processes: 2,048 that each read the list of checkpoints would be a burden for a
    shared disk. Collective."""
    message = None if point is None else (point.checkpoint, point.requested, progress_as_json(point.progress))
    checkpoint, requested, progress = message_from_rank_0(message, tuple[int | None, bool, str])
    return ResumePoint(progress_from_json(progress), checkpoint, requested) if point is None else point


def _request_path(run_dir: Path) -> Path:
    return checkpoints_folder(run_dir) / "resumed_from.json"


def _fulfilled(run_dir: Path) -> object:
    """Return the request that was met last; None if there is none."""
    try:
        return read_json(_request_path(run_dir), object)
    except UNREADABLE:
        return None
