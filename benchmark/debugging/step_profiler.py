"""Trace a few steps: with PyTorch's profiler for a browser, or with NVIDIA's nsys, which is told when to record."""

import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmark.launch.phases import Phase

WRITING_S = 60.0
"""Seconds that the end of a run waits for a trace that is still being written."""


class StepProfiler:
    """An observer of phases that records steps ``first`` to ``last``, counted since the initial checkpoint.

    The trace of PyTorch's profiler, gzipped JSON for chrome://tracing or ui.perfetto.dev, is written to ``path`` in the
    background: a step of 128 micro-batches makes hundreds of megabytes. Without a path it is nsys, started with
    ``--capture-range=cudaProfilerApi``, that records; operators then get NVTX ranges. A recording that fails is
    reported in a line, and training goes on.
    """

    def __init__(self, path: Path | None, device: str, first: int, last: int) -> None:
        self._path, self._first, self._last = path, first, last
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
            if self._is_recording and (step > self._last or phase == "end"):
                self._is_recording, self._is_done = False, True
                self._stop()
            elif not self._is_recording and phase == "data" and self._first <= step <= self._last:
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


@contextlib.contextmanager
def _reported() -> Iterator[None]:
    """Report an exception in a line instead of raising it: a failed trace must not end a run."""
    try:
        yield
    except Exception as error:
        print(f"warning: profile: {' '.join(str(error).split()) or type(error).__name__}", file=sys.stderr, flush=True)
