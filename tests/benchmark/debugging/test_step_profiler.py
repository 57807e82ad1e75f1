"""Which steps are recorded, and what comes of it."""

import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmark.debugging.step_profiler import StepProfiler
from benchmark.launch.phases import Phase

STEP: tuple[Phase, ...] = ("data", "passes", "update")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What nsys is told, for which this machine has no library."""
    found: list[str] = []
    operators = SimpleNamespace(
        __enter__=lambda: found.append("operators"), __exit__=lambda *_: found.append("no operators")
    )
    monkeypatch.setattr(torch.cuda.profiler, "start", lambda: found.append("start"))
    monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: found.append("stop"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: found.append("wait"))
    monkeypatch.setattr(torch.autograd.profiler, "emit_nvtx", lambda: operators)
    return found


def run_steps(profiler: StepProfiler, calls: list[str], first: int, count: int) -> list[str]:
    """Steps from the one with number ``first`` since the checkpoint; the calls and the steps, in their order."""
    profiler.enter("load", -1)
    for steps in range(first, first + count):
        for phase in STEP:
            profiler.enter(phase, steps)
            if phase == "passes":
                calls.append(str(steps + 1))
        if steps % 2:
            profiler.enter("evaluation", steps + 1)
    profiler.enter("end", first + count)
    profiler.close()
    return calls


BEGIN, END = ["start", "operators"], ["wait", "no operators", "stop"]


@pytest.mark.parametrize(
    ("recorded", "first", "count", "due"),
    [
        ((2, 3), 0, 5, ["1", *BEGIN, "2", "3", *END, "4", "5"]),
        ((2, 4), 2, 3, [*BEGIN, "3", "4", *END, "5"]),  # a run that continues within
        ((2, 3), 3, 2, ["4", "5"]),
        ((2, 900), 0, 3, ["1", *BEGIN, "2", "3", *END]),  # a run that ends within
    ],
)
def test_steps_are_recorded_from_their_data_to_the_next_phase(
    recorded: tuple[int, int], first: int, count: int, due: list[str], calls: list[str]
) -> None:
    assert run_steps(StepProfiler(None, "cuda", *recorded), calls, first, count) == due


def test_a_recording_that_fails_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    run_steps(StepProfiler(tmp_path / "file" / "trace", "cpu", 1, 2), [], 0, 3)
    assert "warning: profile: [Errno" in capsys.readouterr().err


@pytest.mark.slow
def test_a_trace_of_pytorchs_profiler(tmp_path: Path) -> None:
    path = tmp_path / "profile" / "trace.json.gz"
    profiler = StepProfiler(path, "cpu", 2, 2)
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
