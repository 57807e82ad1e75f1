"""Write a run's checkpoints: copied while training pauses, written in the background, published by rename.

No failure in the background reaches training: the only effect is a checkpoint that could not be written.
"""

import contextlib
import datetime
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from benchmark.config.run_sections import SaveOptions
from benchmark.run_record.checkpoint_folder import (
    progress_as_json,
    publish_checkpoint,
    remove_retired,
    retire_old_checkpoints,
    retire_partial,
)
from benchmark.run_record.file_names import checkpoint_path
from benchmark.run_record.lease import JOB_S
from benchmark.run_record.small_files import wait_for
from benchmark.training.checkpoints.shard_index import RankShard, tensors_to_write, write_index, write_shard
from benchmark.training.engine.adam import MOMENTS
from benchmark.training.engine.distributed import BACKGROUND
from benchmark.training.engine.rank_messages import all_messages, messages_on_rank_0
from benchmark.training.engine.train_state import TrainState
from foundation.outputs.digest import md5_file
from foundation.outputs.publish import partial_path

WRITE_LIMIT_S = 1200.0
"""Seconds that the processes wait in the background for a process that is still writing. 2.1 TB at 5 GB/s take 420
s."""

SLAB_BYTES = 1 << 28
"""Bytes of a slab of page-locked memory; larger if it would not hold four of the largest tensors."""
ALIGNMENT = 512
"""Bytes to which the start of each tensor in a slab is aligned, as on a device."""


@dataclass(frozen=True)
class CheckpointWrite:
    """The result of writing a checkpoint in the background."""

    steps: int
    seconds: float
    """Seconds from the end of the pause until the checkpoint had its final name."""
    bytes: int
    """Bytes written by this process."""
    failure: str | None
    """The reason if the checkpoint could not be written."""


class _Writing:
    """A checkpoint being written, in a thread that the end of the process does not wait for."""

    def __init__(self, steps: int, write: Callable[[], CheckpointWrite]) -> None:
        self.steps, self.began_s = steps, time.monotonic()
        self.result: CheckpointWrite | None = None
        self.thread = threading.Thread(target=self._run, args=(write,), name=f"{BACKGROUND} checkpoint", daemon=True)
        self.thread.start()

    def _run(self, write: Callable[[], CheckpointWrite]) -> None:
        self.result = write()


class Checkpointer:
    """Copy the state while training pauses, and write the copy while training goes on. Collective."""

    def __init__(
        self,
        state: TrainState,
        run_dir: Path,
        options: SaveOptions,
        require_lease: Callable[[], object] = lambda: None,
    ) -> None:
        """``require_lease``: raises OSError while rank 0 may not write in the run's folder."""
        self._require_lease = require_lease
        self._state, self._device, self._run_dir, self._options = state, state.world.device, run_dir, options
        self._group = self._new_group()
        self.broken = False
        """True if the background's messages failed: call :meth:`renew` before the next checkpoint."""
        self._copies: dict[str, Tensor] = {}
        self._names: list[str] | None = None
        """Names of the tensors whose part this process writes; None before the first checkpoint."""
        self._writing: _Writing | None = None
        self._removing: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """True while a checkpoint is being written on this process, so that nothing can be copied."""
        return self._writing is not None and self._writing.thread.is_alive()

    @property
    def writing(self) -> tuple[int, float] | None:
        """Steps of the checkpoint being written and the seconds since its beginning; None if there is none."""
        return (self._writing.steps, time.monotonic() - self._writing.began_s) if self._writing is not None else None

    def save(self) -> float:
        """Begin to write the state; return the seconds that training paused. No checkpoint may be under way."""
        assert self._writing is None
        started = time.perf_counter()
        copying = _outcome(self._copy)  # as for lack of memory on the host: then nothing is written, anywhere
        progress = self._state.progress
        steps, text = progress.steps, progress_as_json(progress)
        self._writing = _Writing(steps, lambda: self._write(steps, text, copying))
        return time.perf_counter() - started

    def poll(self) -> CheckpointWrite | None:
        """Return the result of the checkpoint being written once it is finished; None before, or if there is none."""
        return None if self.busy else self._finished()

    def wait(self, limit_s: float | None = None) -> CheckpointWrite | None:
        """Wait for the checkpoint being written and return its result; None if there is none or it takes longer."""
        if self._writing is not None:
            self._writing.thread.join(limit_s)
        return self.poll()

    def close(self, limit_s: float) -> None:
        """Wait up to ``limit_s`` for old checkpoints to be removed; the next start removes the rest."""
        if self._removing is not None:
            self._removing.join(limit_s)

    def renew(self) -> None:
        """Make a new process group for the background, after a failure of its messages.

        Collective, while no process writes.
        """
        with contextlib.suppress(RuntimeError):
            dist.destroy_process_group(self._group)
        self._group, self.broken = self._new_group(), False

    def _new_group(self) -> dist.ProcessGroup:
        """Make the background's own process group, so that its messages never mix with training's."""
        limit = datetime.timedelta(seconds=WRITE_LIMIT_S)
        group: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=limit)
        return group

    def _finished(self) -> CheckpointWrite | None:
        writing, self._writing = self._writing, None
        return None if writing is None else writing.result

    def _copy(self) -> None:
        """Copy this process's parts to host memory; every checkpoint uses the same memory."""
        tensors = self._state.tensors()
        parts = {name: tensor.to_local() if isinstance(tensor, DTensor) else tensor for name, tensor in tensors.items()}
        self._copies = self._copies or host_copies(parts)
        for name, part in parts.items():
            self._copies[name].copy_(part, non_blocking=True)
        if self._device.type == "cuda":
            torch.cuda.current_stream().synchronize()

    def _write(self, steps: int, progress: str, copying: str | None) -> CheckpointWrite:
        """Write the copies; this runs in the background. ``copying``: the failure of the copy, if any."""
        started = time.perf_counter()
        final = checkpoint_path(self._run_dir, steps)
        sizes: list[int] = []
        try:
            if self._device.type == "cuda":
                torch.cuda.set_device(self._device)  # a new thread begins on device 0, and would take memory there
            failure = self._on_all(copying) or self._write_parts(final, progress, sizes)
        except Exception as error:  # a message failed: a process is gone, or has been writing for too long
            failure, self.broken = _one_line(error), True
        if dist.get_rank() == 0:
            self._tidy_up()
        return CheckpointWrite(steps, time.perf_counter() - started, 0 if failure else sum(sizes), failure)

    def _write_parts(self, final: Path, progress: str, sizes: list[int]) -> str | None:
        """Write the checkpoint in parts, each after all processes have done the former part; return the reason if it
        failed.

        ``sizes`` is filled with the sizes of this process's shards.
        """
        partial, shards, digests = partial_path(final), list[RankShard](), dict[str, str]()

        def write() -> None:
            shards.append(self._write_shard(partial))
            path = partial / shards[0].file
            digests[path.name] = md5_file(path)  # read back from disk
            sizes.append(path.stat().st_size)

        failure = self._on_all(_outcome(lambda: self._begin(partial)))
        failure = failure or self._on_all(_outcome(write))
        if failure is not None:
            return failure
        content = msgspec.Raw(msgspec.msgpack.encode(shards[0]))
        message = len(shards[0].boxes), content, digests
        by_rank = messages_on_rank_0(message, tuple[int, msgspec.Raw, dict[str, str]], self._group)
        return self._on_all(_outcome(lambda: self._publish(partial, final, by_rank, progress)))

    def _begin(self, partial: Path) -> None:
        """Make the folder of the checkpoint, on rank 0."""
        if dist.get_rank() == 0:
            self._wait_for_lease()
            _make_empty(partial)

    def _wait_for_lease(self) -> None:
        wait_for(self._require_lease, JOB_S, lambda _: None)

    def _on_all(self, outcome: str | None) -> str | None:
        """Return the first failure among the outcomes of all processes; each passes its own. Collective."""
        return next(filter(None, all_messages(outcome, str | None, self._group)), None)

    def _write_shard(self, folder: Path) -> RankShard:
        tensors = self._state.tensors()
        if self._names is None:
            tied = self._state.tied_table.second_copies
            second_copies = {f"{kind}/{name}" for kind in ("model", *MOMENTS) for name in tied}
            self._names = tensors_to_write(tensors, second_copies)
        return write_shard(folder, dist.get_rank(), tensors, self._names, self._copies)

    def _publish(
        self, partial: Path, final: Path, by_rank: Sequence[tuple[int, msgspec.Raw, dict[str, str]]], progress: str
    ) -> None:
        """Write the index and publish the checkpoint, on rank 0. ``by_rank``: number of boxes, shard and digests."""
        if dist.get_rank() != 0:
            return
        self._wait_for_lease()
        counts, shards, digests = zip(*by_rank, strict=True)
        write_index(partial, counts, shards)
        publish_checkpoint(partial, final, {name: md5 for files in digests for name, md5 in files.items()}, progress)

    def _tidy_up(self) -> None:
        """Remove the remains of failed attempts, which may be filling the disk, and checkpoints that are too old.

        An old one is removed only after a newer one is whole. Failed removals are tried again after the next
        checkpoint.
        """
        options = self._options
        with contextlib.suppress(OSError):
            self._require_lease()
            retire_partial(self._run_dir)
            retire_old_checkpoints(self._run_dir, keep=options.keep_checkpoints, keep_every=options.keep_every)
            self._removing = remove_retired(self._run_dir)


def _make_empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _outcome(part: Callable[[], object]) -> str | None:
    """Run ``part``; return its failure in one line. A failed checkpoint is reported, and training goes on."""
    try:
        part()
    except Exception as error:
        return _one_line(error)
    return None


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def host_copies(parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return room on the host for each of ``parts``, by name: same shape and dtype, contiguous, with a storage of its
    own.

    The room is page-locked if the parts are on a GPU, so that copies to it do not wait for the host. PyTorch takes
    page-locked memory in powers of two (CachingHostAllocator.h, 2.11 to 2.13): with one allocation for each tensor, the
    copies of a rank of the 175B model took 1.63 times their size. Tensors therefore share slabs whose size is close to
    a power of two: 1.02 times.
    """
    if not any(part.is_cuda for part in parts.values()):
        return {name: torch.empty(part.shape, dtype=part.dtype) for name, part in parts.items()}
    positions, lengths = packed([part.nbytes for part in parts.values()])
    slabs = [torch.empty(length, dtype=torch.uint8, pin_memory=True).numpy() for length in lengths]
    copies = {}
    for (name, part), (number, start) in zip(parts.items(), positions, strict=True):
        # Through NumPy a part of the slab is a storage: of a view, checkpoints write a clone.
        copy = torch.from_numpy(slabs[number][start : start + part.nbytes])
        copies[name] = copy.view(part.dtype).view(part.shape)
    return copies


def packed(sizes: Sequence[int], slab: int = SLAB_BYTES) -> tuple[list[tuple[int, int]], list[int]]:
    """Place parts of the given bytes: return the slab number and offset of each, and the slabs' lengths in bytes.

    The largest parts come first; each goes into the first slab that has room for it.
    """
    largest = max(sizes, default=0)
    slab = max(slab, 4 << max(0, _aligned(largest) - 1).bit_length())
    positions: list[tuple[int, int]] = [(0, 0)] * len(sizes)
    lengths: list[int] = []
    for index in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        size = _aligned(sizes[index])
        number = next((n for n, used in enumerate(lengths) if used + size <= slab), len(lengths))
        if number == len(lengths):
            lengths.append(0)
        positions[index] = number, lengths[number]
        lengths[number] += size
    return positions, lengths


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
