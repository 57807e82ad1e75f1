"""Writing a run's checkpoints: copied while training pauses, written in the background, published by rename.

Nothing that happens in the background reaches training: it ends as a checkpoint that could not be written.
"""

import contextlib
import datetime
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.tensor import DTensor

from benchmark.training.checkpoints.checkpoint_folder import (
    checkpoint_path,
    progress_as_json,
    publish_checkpoint,
    remove_retired,
    retire_old_checkpoints,
    retire_partial,
)
from benchmark.training.checkpoints.host_copies import host_copies
from benchmark.training.engine.distributed import BACKGROUND
from benchmark.training.engine.train_state import TrainState
from stage.outputs.digest import md5_file
from stage.outputs.publish import partial_path

WRITE_LIMIT_S = 1200.0
"""How long the processes wait in the background for one that is still writing. 2.1 TB at 5 GB/s take 420 s."""


@dataclass(frozen=True)
class Written:
    """A checkpoint that the background has finished with."""

    steps: int
    seconds: float
    """From the end of the pause until it had its final name."""
    bytes: int
    """Written by this process."""
    failure: str | None
    """Why there is no such checkpoint."""


class _Writing:
    """One checkpoint on its way, in a thread that the end of the process does not wait for."""

    def __init__(self, steps: int, write: Callable[[], Written]) -> None:
        self.steps, self.began_s = steps, time.monotonic()
        self.written: Written | None = None
        self.thread = threading.Thread(target=self._run, args=(write,), name=f"{BACKGROUND} checkpoint", daemon=True)
        self.thread.start()

    def _run(self, write: Callable[[], Written]) -> None:
        self.written = write()


class Checkpointer:
    """Copies the state while training pauses, and writes the copy while it goes on. Collective."""

    def __init__(self, state: TrainState, device: torch.device) -> None:
        self._state, self._device = state, device
        self._group = self._new_group()
        self.broken = False
        """The background's messages failed: :meth:`renew` before the next checkpoint."""
        self._copies: dict[str, Tensor] = {}
        self._writing: _Writing | None = None
        self._removing: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """A checkpoint is being written on this process, and nothing can be copied."""
        return self._writing is not None and self._writing.thread.is_alive()

    @property
    def writing(self) -> tuple[int, float] | None:
        """Steps of the checkpoint being written, and for how many seconds it is; None where there is none."""
        return (self._writing.steps, time.monotonic() - self._writing.began_s) if self._writing is not None else None

    def save(self) -> float:
        """Begin to write the state; returns the seconds training paused. Not while one is being written."""
        assert self._writing is None
        started = time.perf_counter()
        copying = _outcome(self._copy)  # as for lack of memory on the host: then nothing is written, anywhere
        progress = self._state.progress
        steps, text = progress.steps, progress_as_json(progress)
        self._writing = _Writing(steps, lambda: self._write(steps, text, copying))
        return time.perf_counter() - started

    def poll(self) -> Written | None:
        """What became of the checkpoint being written, once it is finished; None before, and when there is none."""
        return None if self.busy else self._finished()

    def wait(self, limit_s: float | None = None) -> Written | None:
        """Wait for the checkpoint being written: what became of it; None when there is none, or it takes longer."""
        if self._writing is not None:
            self._writing.thread.join(limit_s)
        return self.poll()

    def close(self, limit_s: float) -> None:
        """Wait a little for old checkpoints to be removed; what is left the next start removes."""
        if self._removing is not None:
            self._removing.join(limit_s)

    def renew(self) -> None:
        """Make the background's group anew, after a failure of its messages. Collective, while none is busy."""
        with contextlib.suppress(RuntimeError):
            dist.destroy_process_group(self._group)
        self._group, self.broken = self._new_group(), False

    def _new_group(self) -> dist.ProcessGroup:
        """The background's own, so that its messages never mix with training's."""
        limit = datetime.timedelta(seconds=WRITE_LIMIT_S)
        group: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=limit)
        return group

    def _finished(self) -> Written | None:
        writing, self._writing = self._writing, None
        return None if writing is None else writing.written

    def _copy(self) -> None:
        """This process's parts, to memory of the host; the same memory for every checkpoint."""
        tensors = self._state.tensors()
        parts = {name: one.to_local() if isinstance(one, DTensor) else one for name, one in tensors.items()}
        self._copies = self._copies or host_copies(parts)
        for name, part in parts.items():
            self._copies[name].copy_(part, non_blocking=True)
        if self._device.type == "cuda":
            torch.cuda.current_stream().synchronize()

    def _write(self, steps: int, progress: str, copying: str | None) -> Written:
        """Runs in the background. ``copying``: what went wrong before."""
        started = time.perf_counter()
        final = checkpoint_path(self._state.config.run_dir, steps)
        sizes: list[int] = []
        try:
            if self._device.type == "cuda":
                torch.cuda.set_device(self._device)  # a new thread begins on device 0, and would take memory there
            failure = self._on_all(copying) or self._write_parts(final, progress, sizes)
        except Exception as error:  # a message failed: a process is gone, or has been writing for too long
            failure, self.broken = _one_line(error), True
        if dist.get_rank() == 0:
            self._tidy_up()
        return Written(steps, time.perf_counter() - started, 0 if failure else sum(sizes), failure)

    def _write_parts(self, final: Path, progress: str, sizes: list[int]) -> str | None:
        """Each part is begun when all processes have done the one before; why the checkpoint could not be written.

        ``sizes``: filled with those of this process's shards.
        """
        partial, digests = partial_path(final), dict[str, str]()

        def write() -> None:
            digests.update(self._write_shards(partial))
            sizes.extend((partial / name).stat().st_size for name in digests)

        failure = self._on_all(_outcome(lambda: _make_empty(partial) if dist.get_rank() == 0 else None))
        failure = failure or self._on_all(_outcome(write))
        if failure is not None:
            return failure
        everywhere = self._gathered(digests)
        return self._on_all(_outcome(lambda: self._publish(partial, final, everywhere, progress)))

    def _on_all(self, outcome: str | None) -> str | None:
        """What went wrong on the first of the processes where anything did; each gives its own outcome."""
        everywhere: list[str | None] = [None] * dist.get_world_size()
        dist.all_gather_object(everywhere, outcome, group=self._group)
        return next(filter(None, everywhere), None)

    def _gathered(self, digests: dict[str, str]) -> dict[str, str]:
        """Those of all processes, on rank 0; nothing on the others."""
        everywhere: list[dict[str, str]] | None = [{}] * dist.get_world_size() if dist.get_rank() == 0 else None
        dist.gather_object(digests, everywhere, dst=0, group=self._group)
        return {name: md5 for some in everywhere or () for name, md5 in some.items()}

    def _write_shards(self, folder: Path) -> dict[str, str]:
        """This process's shards, and their digests by file name as they are on disk."""
        planner = _CopiesPlanner(self._copies)
        dcp.save(self._state.tensors(), checkpoint_id=folder, planner=planner, process_group=self._group)
        # By their numbers: 2,048 processes that list a folder of as many files are a burden for a shared disk.
        names = (f"__{dist.get_rank()}_{number}.distcp" for number in count())
        digests: dict[str, str] = {}
        while (path := folder / next(names)).exists():
            digests[path.name] = md5_file(path)
        return digests

    def _publish(self, partial: Path, final: Path, shard_digests: Mapping[str, str], progress: str) -> None:
        if dist.get_rank() == 0:
            publish_checkpoint(partial, final, shard_digests, progress)

    def _tidy_up(self) -> None:
        """Remove what is left of failed attempts, which may be what fills the disk, and checkpoints that are too old;
        never one before a newer one is whole. What cannot be removed now is tried again after the next."""
        config = self._state.config
        with contextlib.suppress(OSError):
            retire_partial(config.run_dir)
            retire_old_checkpoints(
                config.run_dir, keep=config.checkpoints.keep_checkpoints, keep_every=config.checkpoints.keep_every
            )
            self._removing = remove_retired(config.run_dir)


class _CopiesPlanner(dcp.DefaultSavePlanner):
    """Plans by the state's own tensors and writes their copies, whose values training does not change."""

    def __init__(self, copies: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._copies = copies

    def lookup_object(self, index: MetadataIndex) -> Tensor:
        return self._copies[index.fqn]


def _make_empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _outcome(part: Callable[[], object]) -> str | None:
    """What went wrong, in one line: a checkpoint that cannot be written is reported, and training goes on."""
    try:
        part()
    except dcp.api.CheckpointException as error:
        return _one_line(next(iter(error.failures.values()))[0])
    except Exception as error:
        return _one_line(error)
    return None


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
