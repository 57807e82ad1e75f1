"""``benchmark slice``: a small one on a CPU, and what becomes of failures on made-up GPUs."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmark.__main__ import main
from benchmark.commands.plan_commands import SliceCommand
from benchmark.planning.run_plan.calibration import read_calibration
from benchmark.planning.slice import run_slice as module
from benchmark.planning.slice.rank_measurement import RankMeasurement
from benchmark.planning.slice.run_slice import run_slice
from benchmark.planning.slice.slice_config import SliceOptions
from benchmark.planning.slice.slice_devices import DeviceFacts
from benchmark.planning.slice.slice_result import slice_lines
from foundation.errors import CheckFailed, InputError
from tests.benchmark.planning.slice.samples import REPORT, measurement, result_on

H100 = DeviceFacts("NVIDIA H100 80GB HBM3", 2, 80_000_000_000)


@pytest.mark.slow
def test_the_command_measures_a_small_slice_on_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "slice rehearsal --device cpu --layers 2 --hidden-size 64 --seq-length 32 --micro-batches 2 --steps 2"
    assert main([*words.split(), "--tensor-parallel", "2", "--output", str(tmp_path), "--profile", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result.pop("whole_system") is None  # of a CPU no system is told
    assert result == json.loads((tmp_path / "slice.json").read_text())
    assert (result["layers"], result["true_width"], result["device"], result["mfu"]) == (2, False, "cpu", None)
    assert {"matmul", "attention", "normalization", "communication"} <= set(result["by_kind_s"])
    (memory,) = result["memory"]
    layer = 12 * 64 * 64 / 2
    # 18 bytes per parameter: BF16 and FP32 values, FP32 gradients, two moments
    assert (memory["rank"], memory["kind"]) == (0, "every rank") and memory["dry_run_bytes"] > 2 * 18 * layer
    calibration = read_calibration(tmp_path / "calibration.json")
    assert calibration.step.step_s == result["step_s"] > 0
    assert {one.tensor_parallel for one in calibration.matmuls} == {1, 2}
    assert {(one.kind, one.ranks, one.seconds > 0) for one in calibration.collectives} == {
        (kind, 2, True) for kind in ("all-gather", "reduce-scatter", "all-reduce", "send")
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["calibration.json", "slice.json", "trace.json"]


def on_h100s(monkeypatch: pytest.MonkeyPatch, status: int, said: str, left: RankMeasurement | None = None) -> None:
    """Two GPUs, on which every process says something and ends."""

    def ended(function: Any, arguments: Sequence[Any], *, log: Path, **_: Any) -> int:
        log.write_text(said)
        if left is not None:
            (arguments[1] / "rank_0").write_bytes(msgspec.msgpack.encode(left))
        return status

    monkeypatch.setattr(module, "device_facts", lambda *_: H100)
    monkeypatch.setattr(module, "chosen_layers", lambda *_: 2)
    monkeypatch.setattr(module, "counted_memory", lambda *_: [REPORT])
    monkeypatch.setattr(module, "fullest_bytes", lambda options, facts, layers: (28 + 16 * layers) * 10**9)
    monkeypatch.setattr(module, "run_ranks", ended)


def test_more_devices_than_there_are_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    on_h100s(monkeypatch, 0, "")
    with pytest.raises(InputError, match="take 4 devices; PyTorch sees 2 here: lower --tensor-parallel"):
        run_slice(SliceOptions("gpt3_175b", tensor_parallel=4, output=tmp_path))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\nof another rank",
            r"layers 2: out of memory, where the dry run counts 60.0 GB: --layers 1 takes 44.0 GB; torch.OutOf",
        ),
        ("RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried 9 bytes", "layers 2: out of memory"),
        (
            "Traceback\nRuntimeError: no such kernel",
            "a process of the slice ended with status 1: RuntimeError: no",
        ),
    ],
)
def test_a_failure_is_told_by_its_reason(said: str, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    on_h100s(monkeypatch, 1, said)
    with pytest.raises(CheckFailed, match=told):
        run_slice(SliceOptions("gpt3_175b", output=tmp_path))
    assert (tmp_path / "slice.log").read_text() == said


def test_what_was_measured_before_a_failure_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    left = replace(measurement(0, (2.0,), on_gpu=True), rates=None)
    on_h100s(monkeypatch, 1, "noise\nRuntimeError: no such kernel", left)
    (tmp_path / "calibration.json").write_text("of another slice")
    result, calibration = run_slice(SliceOptions("gpt3_175b", layers=1, output=tmp_path))
    (problem,) = result["problems"]
    assert problem.startswith("after the steps a process ended with status 1: RuntimeError: no such kernel (")
    assert (result["step_s"], calibration) == (2.0, None)
    assert json.loads((tmp_path / "slice.json").read_text())["problems"] == [problem]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["slice.json", "slice.log"]
    assert list(slice_lines(result, calibration))[-1] == f"NOT measured: {problem}"


def test_rates_that_cannot_be_are_told_after_the_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result, calibration = result_on("NVIDIA H100 80GB HBM3")
    wrong = replace(calibration, true_width=True, benchmark="gpt3_175b")
    monkeypatch.setattr(module, "run_slice", lambda _: (result, wrong))
    monkeypatch.setattr("benchmark.commands.plan_commands.require_gpu", lambda *_: None)
    assert SliceCommand(SliceOptions("gpt3_175b", output=tmp_path)).run() == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert any(line.startswith("throughput") for line in lines)
    assert last.startswith("no plan: calibration of H100 SXM: ")
