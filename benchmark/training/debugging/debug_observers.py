"""Observe a run as its switches say (DebugSwitches in benchmark/config/run_sections.py)."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmark.config.run_sections import DebugSwitches
from benchmark.run_record.file_names import MEMORY_FILE, profile_path, rank_file
from benchmark.run_record.phases import Phase, PhaseLog
from benchmark.training.debugging.collective_trace import recorder_environment

MOST_ENTRIES = 100_000
"""Number of allocations and releases that are remembered with their Python stacks; a step of 175B makes some
thousands."""
WRITING_S = 60.0
"""Seconds that the end of a run waits for a trace that is still being written."""


def debug_environment(switches: DebugSwitches, device: str, attempt: Path) -> dict[str, str]:
    """Return the variables that NCCL and PyTorch read when the processes meet; none without GPUs."""
    if device != "cuda":
        return {}
    variables = recorder_environment(attempt.absolute())
    if switches.nccl_debug is not None:
        variables["NCCL_DEBUG"] = switches.nccl_debug
        variables["NCCL_DEBUG_FILE"] = str(attempt.absolute() / "nccl.%h.%p.log")  # host and process
    return variables


@contextmanager
def debugging(
    switches: DebugSwitches, device: str, run_dir: Path, attempt: Path, rank: int, phases: PhaseLog
) -> Iterator[None]:
    """Observe the phases of this process as the switches say; at the end, finish the files being written."""
    if switches.memory_snapshot:
        attempt.mkdir(parents=True, exist_ok=True)
        snapshot_when_out_of_memory(rank_file(attempt, rank, MEMORY_FILE))
    if switches.nvtx:
        phases.add(NvtxRanges())
    steps = switches.profiled_steps
    if steps is None or rank not in switches.profile_ranks:
        yield
        return
    path = None if switches.nvtx else profile_path(run_dir, *steps, rank)
    profiler = StepProfiler(path, device, *steps)
    phases.add(profiler)
    yield
    profiler.close()


class StepProfiler:
    """An observer of phases that records steps ``first`` to ``last``, counted since the initial checkpoint.

    The trace of PyTorch's profiler, gzipped JSON for chrome://tracing or ui.perfetto.dev, is written to ``path`` in the
    background: a step of 128 micro-batches makes hundreds of megabytes. Without a path it is nsys, started with
    ``--capture-range=cudaProfilerApi``, that records; operators then get NVTX ranges. A recording that fails is
    reported in a line, and training goes on.
    """

    def __init__(self, path: Path | None, device: str, first_step: int, last_step: int) -> None:
        self._path, self._first_step, self._last_step = path, first_step, last_step
        self._is_recording = self._is_done = False
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profile: Any = torch.profiler.profile(activities=activities)
        self._operators: Any = torch.autograd.profiler.emit_nvtx()  # type: ignore[no-untyped-call]
        self._writing: threading.Thread | None = None

    def enter(self, phase: Phase, steps: int) -> None:
        """Start or stop recording when a step begins."""
        if steps < 0 or self._is_done:
            return
        step = steps + 1  # that begins, or comes next
        with _reported():
            if self._is_recording and (step > self._last_step or phase == "end"):
                self._is_recording, self._is_done = False, True
                self._stop()
            elif not self._is_recording and phase == "data" and self._first_step <= step <= self._last_step:
                self._is_recording = True
                self._begin()

    def close(self) -> None:
        """Wait for the trace that is being written."""
        if self._writing is not None:
            self._writing.join(WRITING_S)

    def _begin(self) -> None:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._profile.start()
        else:
            torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
            self._operators.__enter__()

    def _stop(self) -> None:
        if self._path is not None:
            self._profile.stop()
            self._writing = threading.Thread(target=self._write, args=[self._path], name="profile", daemon=True)
            self._writing.start()
        else:
            torch.cuda.synchronize()
            self._operators.__exit__(None, None, None)
            torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]

    def _write(self, path: Path) -> None:
        with _reported():
            partial = path.with_name(f".partial-{path.name}")
            self._profile.export_chrome_trace(str(partial))
            partial.rename(path)


@contextmanager
def _reported() -> Iterator[None]:
    """Report an exception in a line instead of raising it: a failed trace must not end a run."""
    try:
        yield
    except Exception as error:
        print(f"warning: profile: {' '.join(str(error).split()) or type(error).__name__}", file=sys.stderr, flush=True)


class NvtxRanges:
    """An observer of phases that opens an NVTX range for each, which nsys shows in its timeline."""

    def __init__(self) -> None:
        self._is_open = False

    def enter(self, phase: Phase, steps: int) -> None:
        if self._is_open:
            torch.cuda.nvtx.range_pop()  # type: ignore[no-untyped-call]
        name = phase if steps < 0 else f"step {steps + 1}: {phase}"
        torch.cuda.nvtx.range_push(name)  # type: ignore[no-untyped-call]
        self._is_open = True


def snapshot_when_out_of_memory(path: Path) -> None:
    """Remember the owners of a GPU's memory; write ``path`` once, a snapshot for https://pytorch.org/memory_viz, before
    PyTorch gives up on an allocation.

    PyTorch tries again after it has released its cached memory: a snapshot does not mean that the run failed.
    """

    def out_of_memory(device: int, requested_bytes: int, allocated: int, free_bytes: int) -> None:
        if path.exists():
            return
        try:
            torch.cuda.memory._dump_snapshot(str(path))  # type: ignore[no-untyped-call]
            request = f"{requested_bytes / 2**30:.2f} GiB wanted, {free_bytes / 2**30:.2f} GiB free on device {device}"
            print(f"out of memory: {request}; see {path}", file=sys.stderr, flush=True)
        except Exception as error:  # the run's own error comes next and says more
            print(f"warning: {path}: {error}", file=sys.stderr, flush=True)

    torch.cuda.memory._record_memory_history(max_entries=MOST_ENTRIES, stacks="python")
    torch._C._cuda_attach_out_of_memory_observer(out_of_memory)  # type: ignore[attr-defined]
