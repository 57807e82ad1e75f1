"""Checkpoints of a run: written aside and renamed, so that one that is there is whole.

    RUN_DIR/checkpoints/step_00000064/   PyTorch DCP shards of weights and moments, and progress.json

They load in any other topology. The files are this run's own; PyTorch reads their index with pickle, so do not
continue from a folder that a stranger may have written to.
"""

import json
import re
import shutil
from dataclasses import asdict
from pathlib import Path

import torch.distributed.checkpoint as dcp

from benchmark.distributed import World
from benchmark.state import Evaluation, Progress, TrainState
from stage.errors import InputError
from stage.publish import partial_path, sync_folder, write_text

PROGRESS = "progress.json"


def checkpoints_folder(run_dir: Path) -> Path:
    return run_dir / "checkpoints"


def newest_checkpoint(run_dir: Path) -> int | None:
    """Steps of the newest whole checkpoint, None where there is none."""
    steps = _whole_checkpoints(run_dir)
    return steps[-1] if steps else None


def checkpoint_path(run_dir: Path, steps: int) -> Path:
    return checkpoints_folder(run_dir) / f"step_{steps:08d}"


def save_checkpoint(state: TrainState, world: World) -> None:
    """Write the state of all processes; returns when it is on disk. Removes the oldest beyond those to keep."""
    run_dir = state.config.run_dir
    final = checkpoint_path(run_dir, state.progress.steps)
    partial = partial_path(final)
    if world.rank == 0:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    world.barrier()
    dcp.save(state.tensors(), checkpoint_id=partial)
    if world.rank == 0:
        write_text(partial / PROGRESS, json.dumps(asdict(state.progress), indent=1) + "\n")
        sync_folder(partial)
        partial.rename(final)
        for old in _whole_checkpoints(run_dir)[: -state.config.keep_checkpoints]:
            shutil.rmtree(checkpoint_path(run_dir, old))
    world.barrier()


def load_checkpoint(state: TrainState, folder: Path) -> None:
    """Fill weights and moments from ``folder``, written by any topology of the same model.

    ``state.progress`` is what :func:`read_progress` found there. Raises InputError when PyTorch refuses the files.
    """
    try:
        dcp.load(state.tensors(), checkpoint_id=folder)
    except dcp.api.CheckpointException as error:
        reason = next(iter(error.failures.values()))[0]
        raise InputError(f"{folder}: cannot be loaded ({reason}); delete it to use an older one") from error
    updates = state.progress.steps - state.progress.skipped_steps
    state.optimizer.start_at(state.config.benchmark.start_iterations + updates)


def read_progress(folder: Path) -> Progress:
    """The progress stored in a checkpoint. Raises InputError where it is missing or damaged."""
    path = folder / PROGRESS
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        fields["evaluations"] = [Evaluation(**evaluation) for evaluation in fields["evaluations"]]
        return Progress(**fields)
    except (FileNotFoundError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}: missing or damaged ({error}); delete its folder to use an older one") from error


def _whole_checkpoints(run_dir: Path) -> list[int]:
    folder = checkpoints_folder(run_dir)
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(match[1]) for match in (re.fullmatch(r"step_(\d+)", name) for name in names) if match)
