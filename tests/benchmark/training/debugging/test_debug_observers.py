"""What the switches of a run set up: which steps are recorded, and what comes of it."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmark.config.run_sections import DebugSwitches
from benchmark.run_record.phases import Phase, PhaseLog
from benchmark.training.debugging.debug_observers import (
    NvtxRanges,
    StepProfiler,
    debug_environment,
    debugging,
    snapshot_when_out_of_memory,
)
from tests.benchmark.runs import run, system_of
from tests.benchmark.tiny import SHORT, Inputs

STEP: tuple[Phase, ...] = ("data", "passes", "update")


def test_logs_of_nccl_go_to_the_attempt() -> None:
    attempt = Path("/run/attempts/0001")
    assert debug_environment(DebugSwitches(), "cpu", attempt) == {}
    variables = debug_environment(DebugSwitches(nccl_debug="INFO"), "cuda", attempt)
    assert variables["NCCL_DEBUG"] == "INFO"
    assert variables["NCCL_DEBUG_FILE"] == "/run/attempts/0001/nccl.%h.%p.log"
    assert "NCCL_DEBUG" not in debug_environment(DebugSwitches(), "cuda", attempt)


def test_nobody_observes_where_nothing_is_switched_on(tmp_path: Path) -> None:
    phases = PhaseLog()
    for switches in (DebugSwitches(), DebugSwitches(profile="1:2", profile_ranks=(1,))):
        with debugging(switches, "cpu", tmp_path, tmp_path, 0, phases):
            pass
    assert phases._observers == []


@pytest.mark.slow
def test_steps_of_a_run_are_traced_on_the_ranks_that_are_named(inputs: Inputs, tmp_path: Path) -> None:
    switches = DebugSwitches(profile="2:3", profile_ranks=(1,))
    run(inputs, tmp_path / "run", system_of(2), benchmark=SHORT, debug=switches)
    (path,) = (tmp_path / "run" / "profile").iterdir()
    assert path.name == "steps_2_3_rank_00001.json.gz"
    with gzip.open(path) as file:
        names = [event.get("name") for event in json.load(file)["traceEvents"]]
    assert names.count("aten::native_layer_norm") >= 2 * 9  # of two steps, four blocks and what follows them


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What nsys is told, for which this machine has no library."""
    calls: list[str] = []
    operators = SimpleNamespace(
        __enter__=lambda: calls.append("operators"), __exit__=lambda *_: calls.append("no operators")
    )
    monkeypatch.setattr(torch.cuda.profiler, "start", lambda: calls.append("start"))
    monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: calls.append("stop"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: calls.append("wait"))
    monkeypatch.setattr(torch.autograd.profiler, "emit_nvtx", lambda: operators)
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", calls.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: calls.append("pop"))
    return calls


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


def test_each_phase_is_a_range(calls: list[str]) -> None:
    ranges = NvtxRanges()
    ranges.enter("load", -1)
    ranges.enter("data", 0)
    assert calls == ["load", "pop", "step 1: data"]


def test_one_snapshot_is_written_when_memory_runs_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    observers: list[Callable[[int, int, int, int], None]] = []
    monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", observers.append, raising=False)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda **_: None)
    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", lambda path: Path(path).write_text("snapshot"))
    path = tmp_path / "rank_00003.memory.pickle"
    for there in (path, tmp_path / "no folder" / "memory.pickle"):
        snapshot_when_out_of_memory(there)
        for _ in range(2):
            observers[-1](3, 5 * 2**30, 70 * 2**30, 2**29)
    assert path.read_text() == "snapshot"
    told, *warnings = capsys.readouterr().err.splitlines()
    assert told == f"out of memory: 5.00 GiB wanted, 0.50 GiB free on device 3; see {path}"
    assert all(line.startswith("warning: ") for line in warnings)
