"""Writing a run's checkpoints: copied while training pauses, written in the background, published by rename."""

import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
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
    remove_old_checkpoints,
)
from benchmark.training.engine.train_state import TrainState
from stage.digest import md5_file
from stage.publish import partial_path


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


class Checkpointer:
    """Copies the state while training pauses, and writes the copy while it goes on. Collective."""

    def __init__(self, state: TrainState, device: torch.device) -> None:
        self._state, self._device = state, device
        self._group = dist.new_group(backend="gloo")
        """The background's own, so that its messages never mix with training's."""
        self._copies: dict[str, Tensor] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[Written] | None = None

    def save(self) -> float:
        """Begin to write the state; returns the seconds training paused. Call :meth:`wait` or :meth:`poll` before."""
        assert self._writing is None
        started = time.perf_counter()
        self._copy()
        progress = self._state.progress
        self._writing = self._thread.submit(self._write, progress.steps, progress_as_json(progress))
        return time.perf_counter() - started

    def poll(self) -> Written | None:
        """What became of the checkpoint being written, once it is finished; None before, and when there is none."""
        return self.wait() if self._writing is not None and self._writing.done() else None

    def wait(self) -> Written | None:
        """Wait for the checkpoint being written to be finished: what became of it; None when there is none."""
        writing, self._writing = self._writing, None
        return writing.result() if writing is not None else None

    def _copy(self) -> None:
        """This process's parts, to memory of the host; the same memory for every checkpoint."""
        for name, tensor in self._state.tensors().items():
            part = tensor.to_local() if isinstance(tensor, DTensor) else tensor
            if name not in self._copies:
                self._copies[name] = torch.empty_like(part, device="cpu", pin_memory=part.is_cuda)
            self._copies[name].copy_(part, non_blocking=True)
        if self._device.type == "cuda":
            torch.cuda.current_stream().synchronize()

    def _write(self, steps: int, progress: str) -> Written:
        """Runs in the background. Each part is begun when all processes have done the one before."""
        started = time.perf_counter()
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)  # a new thread begins on device 0, and would take memory there
        final = checkpoint_path(self._state.config.run_dir, steps)
        partial = partial_path(final)
        digests: dict[str, str] = {}
        failure = self._on_all(lambda: _make_empty(partial) if dist.get_rank() == 0 else None)
        failure = failure or self._on_all(lambda: digests.update(self._write_shards(partial)))
        everywhere = self._gathered(digests)
        failure = failure or self._on_all(lambda: self._publish(partial, final, everywhere, progress))
        written = sum((final / name).stat().st_size for name in digests) if failure is None else 0
        return Written(steps, time.perf_counter() - started, written, failure)

    def _on_all(self, part: Callable[[], object]) -> str | None:
        """Run a part on every process; what went wrong on the first of them where it did."""
        everywhere: list[str | None] = [None] * dist.get_world_size()
        dist.all_gather_object(everywhere, _outcome(part), group=self._group)
        return next(filter(None, everywhere), None)

    def _gathered(self, digests: dict[str, str]) -> dict[str, str]:
        """Those of all processes."""
        everywhere: list[dict[str, str] | None] = [None] * dist.get_world_size()
        dist.all_gather_object(everywhere, digests, group=self._group)
        return {name: md5 for some in everywhere for name, md5 in (some or {}).items()}

    def _write_shards(self, folder: Path) -> dict[str, str]:
        """This process's shards, and their digests by file name as they are on disk."""
        planner = _CopiesPlanner(self._copies)
        dcp.save(self._state.tensors(), checkpoint_id=folder, planner=planner, process_group=self._group)
        return {path.name: md5_file(path) for path in folder.glob(f"__{dist.get_rank()}_*.distcp")}

    def _publish(self, partial: Path, final: Path, shard_digests: Mapping[str, str], progress: str) -> None:
        if dist.get_rank() != 0:
            return
        publish_checkpoint(partial, final, shard_digests, progress)
        config = self._state.config
        remove_old_checkpoints(config.run_dir, keep=config.keep_checkpoints, keep_every=config.keep_every)


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
