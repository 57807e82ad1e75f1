"""Reading a run's checkpoint, or what ``checkpoint_convert to-dcp`` wrote, into any topology.

Nothing is read before its digest was verified, and nothing in it is executed: its index, a pickle, is read by an
unpickler that knows DCP's names only (checkpoint_convert/formats/dcp_metadata.py).
"""

from pathlib import Path

import torch.distributed as dist

from benchmark.training.checkpoints.checkpoint_folder import DIGESTS
from benchmark.training.engine.distributed import World
from benchmark.training.engine.train_state import TrainState
from checkpoint_convert.formats.dcp_arrays import dcp_arrays
from checkpoint_convert.formats.megatron_checkpoint import fill_own_parts
from checksums.md5_list import read_list
from stage.digest import md5_file
from stage.errors import InputError


def load_checkpoint(state: TrainState, folder: Path, world: World) -> None:
    """Fill weights and moments from ``folder``, written by any topology of the same model. Collective.

    ``state.progress`` is what :func:`read_progress` found there. Raises InputError, on all processes and before
    anything is touched, when a file is not what was written.
    """
    verify_checkpoint(folder, world)
    fill_from_dcp(state, folder)
    updates = state.progress.steps - state.progress.skipped_steps
    state.optimizer.start_at(state.config.benchmark.start_iterations + updates)


def fill_from_dcp(state: TrainState, folder: Path) -> None:
    """Fill weights and moments with this process's parts. Raises InputError when they belong to another model."""
    arrays = dcp_arrays(folder)
    tensors = state.tensors()
    for name, tensor in tensors.items():
        if name not in arrays or arrays[name].shape != tuple(tensor.shape):
            found = f"shape {list(arrays[name].shape)}" if name in arrays else "missing"
            raise InputError(
                f"{folder}: {name} is {found}, but the model expects {list(tensor.shape)}; the checkpoint belongs to "
                "another model"
            )
    fill_own_parts(tensors, lambda name, _, box: arrays[name].read(box))


def verify_checkpoint(folder: Path, world: World) -> None:
    """Raise InputError on all processes when any file's digest differs; each process reads some of the files."""
    listed = sorted(read_list(folder / DIGESTS).items())
    damaged = []
    for name, md5 in listed[world.rank :: world.size]:
        path = folder / name
        if not path.is_file() or md5_file(path) != md5:
            damaged.append(name)
    everywhere: list[list[str] | None] = [None] * world.size
    dist.all_gather_object(everywhere, damaged)
    names = sorted(name for some in everywhere for name in some or ())
    if names:
        raise InputError(
            f"{folder}: {', '.join(names)} damaged or missing ({DIGESTS} lists another sum); delete the folder to use "
            "an older checkpoint"
        )
