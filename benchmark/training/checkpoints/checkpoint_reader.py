"""Read a run's checkpoint into any topology.

Nothing is read before its digest was verified, and nothing in it is executed: its index, a pickle, is read by an
interpreter that builds no objects (checkpoint_convert/formats/distributed_checkpoint.py).
"""

import errno
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from torch import Tensor

from benchmark.run_record.checkpoint_folder import ABSENT, DamagedCheckpoint
from benchmark.run_record.file_names import DIGESTS_FILE
from benchmark.run_record.small_files import wait_for, warn
from benchmark.training.engine.distributed import World
from benchmark.training.engine.rank_messages import all_messages, message_from_rank_0
from benchmark.training.engine.train_state import TrainState
from checkpoint_convert.formats.distributed_checkpoint import dcp_arrays
from checkpoint_convert.formats.megatron_checkpoint import fill_own_parts
from foundation.errors import InputError
from foundation.file_formats.md5_list import read_list
from foundation.outputs.digest import md5_file

MOST_READ_AGAIN = 8
"""Most files that rank 0 reads again after another process found them damaged."""


class UnequalReads(OSError):
    """This machine reads other contents of a checkpoint's files than rank 0 does."""


def load_checkpoint(state: TrainState, folder: Path) -> None:
    """Fill weights and moments from ``folder``, written by any topology of the same model. Collective.

    ``state.progress`` must be the checkpoint's, from :func:`read_progress`. Raises DamagedCheckpoint, an InputError, on
    all processes and before anything is touched, when a file is damaged.
    """
    verify_checkpoint(folder, state.world)
    fill_state(state, folder)


def fill_state(state: TrainState, folder: Path) -> None:
    """As :func:`load_checkpoint`, from files that :func:`verify_checkpoint` found sound."""
    fill_from_dcp(state.tensors(), folder)
    updates = state.progress.steps - state.progress.skipped_steps
    state.optimizer.start_at(state.benchmark.start_iterations + updates)


def fill_from_dcp(tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Fill ``tensors``, by the names of :meth:`TrainState.tensors`, with this process's parts; read nothing else.

    Raises InputError when the checkpoint belongs to another model.
    """
    arrays = dcp_arrays(folder)
    for name, tensor in tensors.items():
        if name not in arrays or arrays[name].shape != tuple(tensor.shape):
            problem = f"shape {list(arrays[name].shape)}" if name in arrays else "missing"
            raise InputError(
                f"{folder}: {name} is {problem}, but the model expects {list(tensor.shape)}; the checkpoint belongs to "
                "another model"
            )
    fill_own_parts(tensors, lambda name, _, box: arrays[name].read(box))


def verify_checkpoint(folder: Path, world: World, patience_s: float = 0.0) -> None:
    """Verify the digests of a checkpoint's files; each process reads some of them. Collective.

    ``patience_s``: seconds that a disk may give errors, which say nothing about the files. Raises OSError after them.
    Raises DamagedCheckpoint on all processes when any file is damaged. If another process finds damage in files
    that rank 0 reads well, the checkpoint is sound, and something is wrong with that process's machine: it raises
    UnequalReads, and the others, which lose it, ConnectionError.
    """
    report = world.host, _damaged(folder, lambda names: names[world.rank :: world.size], patience_s)
    reports = all_messages(report, tuple[str, list[str]])
    names = sorted({name for _, damaged in reports for name in damaged})
    if not names:
        return
    damaged_on_rank_0 = world.rank == 0 and bool(_damaged(folder, lambda _: names[:MOST_READ_AGAIN], patience_s))
    if message_from_rank_0(damaged_on_rank_0, bool):
        raise DamagedCheckpoint(folder, names)
    rank, (host, _) = next((rank, rank_report) for rank, rank_report in enumerate(reports) if rank_report[1])
    if not report[1]:
        raise ConnectionError(f"connection closed: rank {rank} on {host} cannot read {folder}")
    raise UnequalReads(errno.EIO, f"{folder / report[1][0]} is not what rank 0 reads, which is sound")


def _damaged(folder: Path, chosen: Callable[[Sequence[str]], Sequence[str]], patience_s: float) -> list[str]:
    """Return the names of damaged files among the listed files that ``chosen`` selects. Raises OSError if a disk gives
    errors for ``patience_s``."""
    try:
        listed = wait_for(lambda: read_list(folder / DIGESTS_FILE), patience_s, warn, answers=ABSENT)
    except (*ABSENT, InputError):
        return [DIGESTS_FILE]
    names = [name for name in chosen(sorted(listed)) if name in listed]
    return [name for name in names if not _holds(folder / name, listed[name], patience_s)]


def _holds(path: Path, md5: str, patience_s: float) -> bool:
    try:
        return wait_for(lambda: md5_file(path), patience_s, warn, answers=ABSENT) == md5
    except ABSENT:
        return False
