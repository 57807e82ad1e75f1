"""``plan`` as it is called: other stacks, calibrations, searches, and what is impossible."""

import dataclasses
import json
import shlex
from pathlib import Path

import pytest

from benchmark.__main__ import main
from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.systems import SYSTEMS
from benchmark.planning.run_plan import search_layouts as module
from benchmark.planning.run_plan.calibration import Calibration, write_calibration
from benchmark.planning.run_plan.plan_command import whole_system
from benchmark.planning.run_plan.plan_options import PlannedRun, PlanOptions
from benchmark.planning.run_plan.search_command import format_search
from benchmark.planning.run_plan.search_layouts import candidates, search_layouts
from benchmark.planning.step_model.machine_constants import committed_constants
from foundation.errors import InputError
from tests.benchmark.planning.run_plan.test_calibration import CALIBRATION

FLAT = ["plan", "llama31_8b", "--stack", "nemo", "--tensor-parallel", "2", "--json"]
"""A plan without a dry run or a pipeline."""


def test_another_stack_without_a_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FLAT, "--precision", "fp8"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["precision"], made["stack"], made["dry_run"]) == ("fp8", "nemo", None)
    assert made["step_s"] > 0
    assert made["mfu"] == pytest.approx(made["tflops_per_device"] / 1978.8)  # of the FP8 peak
    assert made["planned_for"] == {
        "benchmark": "llama31_8b",
        "system": "dgxh100_n1",
        "accelerator": "H100 SXM",
        "devices": 8,
        "global_batch_size": 16,
        "precision": "fp8",
    }


def slower(factor: float, **fields: object) -> Calibration:
    """As a slice of a GPU whose matrix products take so many times as long."""
    products = [dataclasses.replace(each, seconds=each.seconds * factor) for each in CALIBRATION.matmuls]
    changed = dataclasses.replace(CALIBRATION, matmuls=tuple(products), attention=(), elementwise=())
    return dataclasses.replace(changed, benchmark="llama31_8b", **fields)  # type: ignore[arg-type]


def test_the_whole_system_with_the_rates_of_a_slice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [str(whole_system(slower(factor))) for factor in (1.0, 1.5)]
    assert lines[0].startswith("dgxh100_n1 would take ")
    steps = [float(line.split()[3]) for line in lines]
    assert 1.2 < steps[1] / steps[0] < 1.5
    assert whole_system(slower(1.0, true_width=False)) is None
    assert whole_system(slower(1.0, accelerator="")) is None
    calibrated = [*FLAT, "--calibration", str(tmp_path / "calibration.json")]
    write_calibration(slower(1.5), tmp_path / "calibration.json")
    assert main(FLAT) == main(calibrated) == 0
    plain, measured = (json.loads(line)["step_s"] for line in capsys.readouterr().out.splitlines())
    assert measured > plain
    with pytest.raises(InputError, match="measured on H100 SXM, but system h200_n1 has H200; choose another --system"):
        main([*calibrated, "--system", "h200_n1"])
    with pytest.raises(InputError, match=r"none\.json: No such file"):
        main([*FLAT, "--calibration", str(tmp_path / "none.json")])


IMPOSSIBLE = {
    "--what-if nvlnk=2x": "--what-if nvlnk=2x: expected one of matmul, attention, memory, nvlink",
    "--what-if losses=20x": "--what-if losses=20x: expected losses=off",
    "--what-if nvlink=nanx": "expected nvlink= a factor above 0, at most 100",
    "--what-if nvlink=2": "expected nvlink= a factor above 0, at most 100, such as 2x",
    "--what-if dp-overlap=full": "expected dp-overlap=off",
    "--what-if tp-overlap=full tp-overlap=off": "--what-if tp-overlap=off: tp-overlap=full is given too; expected each",
    "--what-if compiled-kernels=off": "--what-if compiled-kernels=off: only stack ours can do without them, not nemo",
    "--stack ours --system cpu_p2 --what-if nvlink=2x": "there are no constants for a CPU; --accelerator may be",
    "--accelerator GB200": "--stack nemo, --what-if: there are no constants for GB200; --accelerator may be A100",
    "--accelerator ''": "no constants for a CPU; --accelerator may be ",
    "--micro-batch-size 1 --seq-length 8 --precision fp8": "--precision fp8: micro_batch_size 1 x seq_length 8 are",
    "--precision fp32": "--precision fp32: stack nemo has bf16 or fp8; stacks with fp32: ours;",
    "--system dgxa100_n64 --precision fp8": "A100-80GB has no FP8; accelerators with FP8: .*H200, .*H100 SXM",
    "--network-gbit-s inf": "--network-gbit-s inf: expected 0.1 to 100,000",
    "--calibration /dev/zero": "/dev/zero: device, not a regular file; expected the calibration.json of a slice",
    "--device cpu": "--device cpu: system dgxh100_n64 has H100 SXM; omit --device, or choose cpu_p2",
    "--search --precision fp32": "--search: no constants of products in fp32; --precision may be bf16 or fp8",
    "--search --accelerator Trillium": "the memory of Trillium is not known; --accelerator may be GB300, B300",
    "--search --accelerator ''": "--search: the memory of the device is not known; --accelerator may be GB300, B300",
    "--search --stack ours --accelerator B300": "--search: no constants of B300; --accelerator may be A100",
    "--search --nodes 1": "no layout of 8 devices can run: .* the smallest needs \\d+ GB; add --nodes",
    "--search --nodes 100000 --global-batch-size 256": r"change --nodes or --global-batch-size \(now 256\), a multiple",
}
"""Options, and what they are answered by: one line that says what is possible."""


@pytest.mark.parametrize("words", IMPOSSIBLE)
def test_the_impossible_is_one_line(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=IMPOSSIBLE[words]) as told:
        main(["plan", "gpt3_175b", "--stack", "nemo", *shlex.split(words)])
    assert "\n" not in str(told.value)
    assert capsys.readouterr().out == ""


def test_a_search_has_the_best_first_and_says_why_others_fall_out(monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = dataclasses.replace(GPT3_175B, global_batch_size=256)
    config = PlannedRun(benchmark, dataclasses.replace(SYSTEMS["dgxh100_n64"], nodes=16))
    layers = benchmark.model.num_layers
    systems = list(candidates(config.system, layers))
    assert len(systems) == len(set(systems))
    assert {system.tensor_parallel for system in systems} == {1, 2, 4, 8}
    assert {system.pipeline_parallel for system in systems} >= {1, 2, 4, 8, 16}
    assert max(system.pipeline_chunks for system in systems if system.pipeline_parallel == 8) == 12
    monkeypatch.setattr(module, "MICRO_BATCH_SIZES", (1,))
    monkeypatch.setattr(module, "MOST_PIPELINE", 8)
    monkeypatch.setattr(module, "RECOMPUTES", ("none",))
    found = search_layouts(config, PlanOptions(), committed_constants().rates("H100 SXM", "ours"))
    runs = [layout.run_s for layout in found.best]
    assert runs == sorted(runs)
    assert len(runs) <= 10
    assert max(layout.memory_gb for layout in found.best) <= 72
    assert found.examined == len(list(candidates(config.system, layers)))
    assert any(reason.startswith("memory: more than 72 of 80 GB") for reason in found.fallen_out)
    assert all(idea.gain >= 0 for idea in found.ideas)
    assert [idea.step_s for idea in found.ideas] == sorted(idea.step_s for idea in found.ideas)
    text = format_search(found, benchmark, config.system)
    assert found.best[0].options in " ".join(text.split())
    assert "--what-if matmul=1.05x" in text
