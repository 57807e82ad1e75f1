"""Which steps are recorded, and what comes of it."""

import gzip
import json
from pathlib import Path

import pytest
import torch

from benchmark.debugging.step_profiler import ChromeTrace, NsysRange, StepProfiler
from benchmark.launch.phases import Phase


class Recorded:
    """A recording that notes the step it is told at."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.calls: list[str] = []
        self._failure = failure

    def start(self) -> None:
        self.calls.append("start")
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        self.calls.append("stop")

    def close(self) -> None:
        self.calls.append("close")


STEP: tuple[Phase, ...] = ("data", "passes", "update")


def run_steps(profiler: StepProfiler, recorded: Recorded, first: int, count: int) -> list[str]:
    """Steps from the one with number ``first`` since the checkpoint; the calls and the steps, in their order."""
    profiler.enter("load", -1)
    for steps in range(first, first + count):
        for phase in STEP:
            profiler.enter(phase, steps)
            if phase == "passes":
                recorded.calls.append(str(100 + steps + 1))
        if steps % 2:
            profiler.enter("evaluation", steps + 1)
    profiler.enter("end", first + count)
    profiler.close()
    return recorded.calls


def test_steps_are_recorded_from_their_data_to_the_next_phase() -> None:
    recorded = Recorded()
    calls = run_steps(StepProfiler(recorded, 102, 103, start_iteration=100), recorded, 0, 5)
    assert calls == ["101", "start", "102", "103", "stop", "104", "105", "close"]


def test_a_run_that_continues_within_records_the_rest_and_after_it_nothing() -> None:
    recorded = Recorded()
    assert run_steps(StepProfiler(recorded, 102, 104, start_iteration=100), recorded, 2, 3) == [
        *["start", "103", "104", "stop", "105", "close"]
    ]
    recorded = Recorded()
    assert run_steps(StepProfiler(recorded, 102, 103, start_iteration=100), recorded, 3, 2) == ["104", "105", "close"]


def test_a_run_that_ends_within_is_stopped() -> None:
    recorded = Recorded()
    calls = run_steps(StepProfiler(recorded, 102, 900, start_iteration=100), recorded, 0, 3)
    assert calls == ["101", "start", "102", "103", "stop", "close"]


def test_a_recording_that_fails_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    recorded = Recorded(OSError("no space left"))
    run_steps(StepProfiler(recorded, 101, 102, start_iteration=100), recorded, 0, 3)
    assert "warning: profile: no space left" in capsys.readouterr().err


@pytest.mark.slow
def test_a_trace_of_pytorchs_profiler(tmp_path: Path) -> None:
    path = tmp_path / "profile" / "trace.json.gz"
    profiler = StepProfiler(ChromeTrace(path, "cpu"), 2, 2, start_iteration=0)
    for steps in range(3):
        profiler.enter("data", steps)
        torch.ones(2 + steps, 3) @ torch.ones(3, 4)
        assert not path.exists() or steps == 2
    profiler.enter("end", 3)
    profiler.close()
    with gzip.open(path) as file:
        names = [event.get("name") for event in json.load(file)["traceEvents"]]
    assert names.count("aten::mm") == 1  # of one step of three
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_range_for_nsys(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(torch.cuda.profiler, "start", lambda: calls.append("start"))
    monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: calls.append("stop"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: calls.append("wait"))
    monkeypatch.setattr(torch.autograd.profiler, "emit_nvtx", lambda: OperatorRanges(calls))
    nsys = NsysRange()
    nsys.start()
    nsys.stop()
    nsys.close()
    assert calls == ["start", "operators", "wait", "no operators", "stop"]


class OperatorRanges:
    def __init__(self, calls: list[str]) -> None:
        self._calls = calls

    def __enter__(self) -> None:
        self._calls.append("operators")

    def __exit__(self, *_: object) -> None:
        self._calls.append("no operators")
