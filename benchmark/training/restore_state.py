"""Fill the state that a run starts with: from the newest sound checkpoint of its own, or from the initial one."""

from pathlib import Path

import torch.distributed as dist

from benchmark.run_record.phases import PhaseLog
from benchmark.training.checkpoints.checkpoint_choice import go_back, next_older
from benchmark.training.checkpoints.checkpoint_folder import (
    DamagedCheckpoint,
    checkpoint_path,
    progress_as_json,
    progress_from_json,
)
from benchmark.training.checkpoints.checkpoint_reader import load_checkpoint
from benchmark.training.engine.train_state import TrainState, begin_state
from benchmark.training.run_log import RunLog


def restore_state(
    state: TrainState, log: RunLog, run_dir: Path, initial: Path | None, launch: str | None, phases: PhaseLog
) -> None:
    """Fill the state, so that it is the same on all processes. Collective. ``initial``: the initial checkpoint.

    A damaged checkpoint is set aside and an older one is taken; nothing of a damaged one is loaded. Raises
    DamagedCheckpoint if the damaged one was requested by ``--resume-from``, InputError if none is left and no initial
    one was named.
    """
    while True:
        _share(log)
        state.progress = log.progress
        if log.resumed_at is None:
            start = begin_state(state, initial)
            log.events.note("message", f"starting from {start}, seed {state.progress.seed}")
            return
        path = checkpoint_path(run_dir, log.resumed_at)
        try:
            load_checkpoint(state, path)
        except DamagedCheckpoint as damage:
            if log.asked_for:
                raise
            if state.world.rank == 0:
                log.go_on_from(next_older(run_dir, log.resumed_at, damage))
            phases.enter("load", -1)
            continue
        if log.asked_for and state.world.rank == 0:
            go_back(run_dir, log.resumed_at, launch)
        log.events.note("message", f"continuing from {path}, seed {state.progress.seed}")
        return


def _share(log: RunLog) -> None:
    """Send rank 0's choice to all processes: 2,048 that each read the list of files would be a burden for a shared
    disk."""
    shared = [(log.resumed_at, log.asked_for, progress_as_json(log.progress))]
    dist.broadcast_object_list(shared, src=0)
    if dist.get_rank() != 0:
        log.resumed_at, log.asked_for, text = shared[0]
        log.progress = progress_from_json(text)
