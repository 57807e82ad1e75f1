"""What the switches of a run set up, and a trace of a run of two processes."""

import dataclasses
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from benchmark.config.run_sections import DebugSwitches
from benchmark.debugging.debug_observers import (
    NvtxRanges,
    debug_environment,
    debugging,
    snapshot_when_out_of_memory,
)
from benchmark.launch.phases import PhaseLog
from tests.benchmark.runs import run, system_of
from tests.benchmark.tiny import CPU, SHORT, Inputs


def test_logs_of_nccl_go_to_the_attempt(inputs: Inputs) -> None:
    attempt = Path("/run/attempts/0001")
    config = inputs.config(Path("/run"))
    assert debug_environment(config.debug, config.system.device, attempt) == {}
    gpu = dataclasses.replace(CPU, device="cuda")
    config = inputs.config(Path("/run"), system=gpu, debug=DebugSwitches(nccl_debug="INFO"))
    found = debug_environment(config.debug, config.system.device, attempt)
    assert found["NCCL_DEBUG"] == "INFO"
    assert found["NCCL_DEBUG_FILE"] == "/run/attempts/0001/nccl.%h.%p.log"
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


def test_each_phase_is_a_range(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", calls.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: calls.append("pop"))
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
