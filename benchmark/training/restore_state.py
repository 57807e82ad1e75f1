"""Load the state that a run starts with: the newest sound checkpoint of its own, or the initial one."""

import torch.distributed as dist

from benchmark.config.run_config import RunConfig
from benchmark.launch.phases import PhaseLog
from benchmark.training.checkpoints.checkpoint_choice import go_back
from benchmark.training.checkpoints.checkpoint_folder import (
    DamagedCheckpoint,
    checkpoint_path,
    progress_as_json,
    progress_from_json,
)
from benchmark.training.checkpoints.checkpoint_reader import load_checkpoint
from benchmark.training.engine.distributed import World
from benchmark.training.engine.train_state import TrainState, draw_initial, empty_state, load_initial
from benchmark.training.run_folder import RunFolder
from checkpoint_convert.formats.megatron_checkpoint import MegatronCheckpoint
from stage.errors import InputError


def restore_state(
    config: RunConfig, world: World, folder: RunFolder, launch: str | None, phases: PhaseLog
) -> TrainState:
    """Return the state, the same on all processes. Collective.

    A damaged checkpoint is set aside and an older one is taken; nothing of a damaged one is loaded. Raises
    DamagedCheckpoint if the damaged one was requested by ``--resume-from``, InputError if none is left and no initial
    one was named.
    """
    state: TrainState | None = None
    while True:
        _share(folder, world)
        if state is None:
            state = empty_state(config, world, folder.progress)
        state.progress = folder.progress
        if folder.resumed_at is None:
            start = _load_initial(state, config)
            folder.events.note("message", f"starting from {start}, seed {state.progress.seed}")
            return state
        path = checkpoint_path(config.run_dir, folder.resumed_at)
        try:
            load_checkpoint(state, path, world)
        except DamagedCheckpoint as damage:
            if folder.asked_for:
                raise
            if world.rank == 0:
                folder.fall_back(config, damage)
            phases.enter("load", -1)
            continue
        if folder.asked_for and world.rank == 0:
            go_back(config.run_dir, folder.resumed_at, launch)
        folder.events.note("message", f"continuing from {path}, seed {state.progress.seed}")
        return state


def _share(folder: RunFolder, world: World) -> None:
    """Send rank 0's choice to all processes: 2,048 that each read the list of files would be a burden for a shared
    disk."""
    shared = [(folder.resumed_at, folder.asked_for, progress_as_json(folder.progress))]
    dist.broadcast_object_list(shared, src=0)
    if world.rank != 0:
        folder.resumed_at, folder.asked_for, text = shared[0]
        folder.progress = progress_from_json(text)


def _load_initial(state: TrainState, config: RunConfig) -> str:
    """Return what it starts from, in words."""
    if not config.needs_checkpoint:
        draw_initial(state)
        return "weights drawn at random"
    if config.data.checkpoint is None:
        raise InputError(f"{config.run_dir}: no sound checkpoint is left; name the initial one with --checkpoint")
    load_initial(state, MegatronCheckpoint(config.data.checkpoint))
    return str(config.data.checkpoint)
