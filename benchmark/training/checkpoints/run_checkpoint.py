"""Checkpoints of a run: written in the background, aside, and renamed, so that one that is there is whole.

    RUN_DIR/checkpoints/step_00000064/   PyTorch DCP shards of weights and moments
                        progress.json    everything else (state.py)
                        digests.md5      of all these files: python -m checksums verify reads it

They load in any other topology. Nothing is read before its digest was verified, and nothing in them is executed: their
index, a pickle, is read by an unpickler that knows DCP's names only (checkpoint_convert/formats/dcp_metadata.py).
"""

import hashlib
import json
import re
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.tensor import DTensor

from benchmark.training.engine.distributed import World
from benchmark.training.engine.train_state import Evaluation, Progress, TrainState
from checkpoint_convert.formats.dcp_arrays import METADATA, dcp_arrays
from checkpoint_convert.formats.megatron_checkpoint import fill_own_parts
from checksums.md5_list import format_list, read_list
from stage.digest import md5_file
from stage.errors import InputError
from stage.publish import partial_path, sync_folder, write_text

PROGRESS = "progress.json"
DIGESTS = "digests.md5"


def checkpoints_folder(run_dir: Path) -> Path:
    return run_dir / "checkpoints"


def checkpoint_path(run_dir: Path, steps: int) -> Path:
    return checkpoints_folder(run_dir) / f"step_{steps:08d}"


def newest_checkpoint(run_dir: Path) -> int | None:
    """Steps of the newest whole checkpoint, None where there is none."""
    steps = _whole_checkpoints(run_dir)
    return steps[-1] if steps else None


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
        for name, tensor in self._state.tensors().items():
            part = _own_part(tensor)
            if name not in self._copies:
                self._copies[name] = torch.empty_like(part, device="cpu", pin_memory=part.is_cuda)
            self._copies[name].copy_(part, non_blocking=True)
        if self._device.type == "cuda":
            torch.cuda.current_stream().synchronize()
        progress = json.dumps(asdict(self._state.progress), indent=1) + "\n"
        self._writing = self._thread.submit(self._write, self._state.progress.steps, progress)
        return time.perf_counter() - started

    def poll(self) -> Written | None:
        """What became of the checkpoint being written, once it is finished; None before, and when there is none."""
        return self.wait() if self._writing is not None and self._writing.done() else None

    def wait(self) -> Written | None:
        """The same, but waits for it."""
        writing, self._writing = self._writing, None
        return writing.result() if writing is not None else None

    def _write(self, steps: int, progress: str) -> Written:
        started = time.perf_counter()
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)  # a new thread begins on device 0, and would take memory there
        final = checkpoint_path(self._state.config.run_dir, steps)
        partial = partial_path(final)
        own: dict[str, str] = {}
        failures = self._together(lambda: _make_empty(partial) if dist.get_rank() == 0 else None)
        failures = failures or self._together(lambda: own.update(self._write_shards(partial)))
        digests: list[dict[str, str] | None] = [None] * dist.get_world_size()
        dist.all_gather_object(digests, own, group=self._group)
        if dist.get_rank() == 0 and not failures:
            merged = {name: md5 for some in digests for name, md5 in (some or {}).items()}
            failures = _outcome(lambda: self._publish(partial, final, merged, progress))
        failures = self._together(lambda: None, failures)
        written = sum((final / name).stat().st_size for name in own) if not failures else 0
        return Written(steps, time.perf_counter() - started, written, failures[0] if failures else None)

    def _together(self, part: Callable[[], object], failures: list[str] | None = None) -> list[str]:
        """Run a part on every process; what went wrong on any of them."""
        everywhere: list[list[str] | None] = [None] * dist.get_world_size()
        dist.all_gather_object(everywhere, failures or _outcome(part), group=self._group)
        return [failure for some in everywhere for failure in some or ()]

    def _write_shards(self, folder: Path) -> dict[str, str]:
        """This process's shards, and their digests by file name as they are on disk."""
        planner = _CopiesPlanner(self._copies)
        dcp.save(self._state.tensors(), checkpoint_id=folder, planner=planner, process_group=self._group)
        return {path.name: md5_file(path) for path in folder.glob(f"__{dist.get_rank()}_*.distcp")}

    def _publish(self, partial: Path, final: Path, digests: Mapping[str, str], progress: str) -> None:
        (partial / PROGRESS).write_text(progress, encoding="utf-8")
        others = {name: md5_file(partial / name) for name in (PROGRESS, METADATA)}
        write_text(partial / DIGESTS, format_list({**digests, **others}))
        sync_folder(partial)
        shutil.rmtree(final, ignore_errors=True)  # of a run that went back to an older one
        partial.rename(final)
        config = self._state.config
        for old in _whole_checkpoints(config.run_dir)[: -config.keep_checkpoints]:
            if not (config.keep_every and old % config.keep_every == 0):
                shutil.rmtree(checkpoint_path(config.run_dir, old))


class _CopiesPlanner(dcp.DefaultSavePlanner):
    """Plans by the state's own tensors and writes their copies, whose values training does not change."""

    def __init__(self, copies: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._copies = copies

    def lookup_object(self, index: MetadataIndex) -> Tensor:
        return self._copies[index.fqn]


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


def read_progress(folder: Path) -> Progress:
    """The progress stored in a checkpoint. Raises InputError where it is missing or not what was written."""
    path = folder / PROGRESS
    try:
        content = path.read_bytes()
        if hashlib.md5(content, usedforsecurity=False).hexdigest() != read_list(folder / DIGESTS).get(PROGRESS):
            raise ValueError(f"{DIGESTS} lists another sum")
        fields = json.loads(content)
        fields["evaluations"] = [Evaluation(**evaluation) for evaluation in fields["evaluations"]]
        return Progress(**fields)
    except (FileNotFoundError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}: missing or damaged ({error}); delete its folder to use an older one") from error


def _whole_checkpoints(run_dir: Path) -> list[int]:
    folder = checkpoints_folder(run_dir)
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(match[1]) for match in (re.fullmatch(r"step_(\d+)", name) for name in names) if match)


def _make_empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _own_part(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _outcome(part: Callable[[], object]) -> list[str]:
    """What went wrong, in one line: a checkpoint that cannot be written is reported, and training goes on."""
    try:
        part()
    except dcp.api.CheckpointException as error:
        return [_line(next(iter(error.failures.values()))[0])]
    except Exception as error:
        return [_line(error)]
    return []


def _line(error: Any) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
