"""Traces of a few steps: by PyTorch's profiler for a browser, or by NVIDIA's nsys, which is told when to record."""

import contextlib
import sys
import threading
from pathlib import Path
from typing import Any, Protocol

import torch

from benchmark.launch.phases import Phase

WRITING_S = 60.0
"""How long the end of a run waits for a trace that is still being written."""


class Recording(Protocol):
    """Records what this process does."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def close(self) -> None:
        """The run ends."""
        ...


class StepProfiler:
    """An observer of phases that records steps ``first`` to ``last``; steps are counted from ``start_iteration``.

    A recording that fails is reported in a line, and training goes on.
    """

    def __init__(self, recording: Recording, first: int, last: int, *, start_iteration: int) -> None:
        self._recording, self._first, self._last, self._start = recording, first, last, start_iteration
        self._is_recording = self._is_done = False

    def enter(self, phase: Phase, steps: int) -> None:
        if steps < 0 or self._is_done:
            return
        iteration = self._start + steps + 1  # the step that begins, or comes next
        with _reported():
            if self._is_recording and (iteration > self._last or phase == "end"):
                self._is_recording, self._is_done = False, True
                self._recording.stop()
            elif not self._is_recording and phase == "data" and self._first <= iteration <= self._last:
                self._is_recording = True
                self._recording.start()

    def close(self) -> None:
        """Wait for what is being written."""
        with _reported():
            self._recording.close()


class ChromeTrace:
    """One trace of PyTorch's profiler, gzipped JSON for chrome://tracing or ui.perfetto.dev.

    It is written in the background: a step of 128 micro-batches makes hundreds of megabytes.
    """

    def __init__(self, path: Path, device: str) -> None:
        self._path = path
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profile: Any = torch.profiler.profile(activities=activities)
        self._writing: threading.Thread | None = None

    def start(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._profile.start()

    def stop(self) -> None:
        self._profile.stop()
        self._writing = threading.Thread(target=self._write, name="profile", daemon=True)
        self._writing.start()

    def close(self) -> None:
        if self._writing is not None:
            self._writing.join(WRITING_S)

    def _write(self) -> None:
        with _reported():
            partial = self._path.with_name(f".partial-{self._path.name}")
            self._profile.export_chrome_trace(str(partial))
            partial.rename(self._path)


class NsysRange:
    """Tells nsys, started with ``--capture-range=cudaProfilerApi``, when to record; operators get NVTX ranges."""

    def __init__(self) -> None:
        self._operators: Any = None

    def start(self) -> None:
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
        self._operators = torch.autograd.profiler.emit_nvtx()  # type: ignore[no-untyped-call]
        self._operators.__enter__()

    def stop(self) -> None:
        torch.cuda.synchronize()
        self._operators.__exit__(None, None, None)
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        pass


@contextlib.contextmanager
def _reported() -> Any:
    """A trace is not worth a run."""
    try:
        yield
    except Exception as error:
        print(f"warning: profile: {' '.join(str(error).split()) or type(error).__name__}", file=sys.stderr, flush=True)
