"""``plan`` as it is called."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from benchmark.__main__ import main
from benchmark.planning.run_plans.calibration import Calibration, write_calibration
from benchmark.planning.run_plans.plan_command import whole_system
from stage.errors import InputError
from tests.benchmark.planning.run_plans.test_calibration import CALIBRATION


def test_another_stack_without_a_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "gpt3_175b", "--global-batch-size", "2048", "--pipeline-chunks", "6", "--stack", "nemo"]
    assert main([*words, "--precision", "fp8", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["precision"], made["stack"], made["dry_run"]) == ("fp8", "nemo", None)
    assert made["step_s"] > 0
    assert made["mfu"] > 0.6


def slower(factor: float) -> Calibration:
    """As a slice of a GPU whose matrix products take so many times as long."""
    products = [replace(each, seconds=each.seconds * factor) for each in CALIBRATION.matmuls]
    return replace(CALIBRATION, matmuls=tuple(products), attention=(), elementwise=())


def test_the_whole_system_with_the_rates_of_a_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [whole_system(slower(factor)) for factor in (1.0, 1.5)]
    steps = [float(line.split()[3]) for line in lines if line is not None]
    assert 1.2 < steps[1] / steps[0] < 1.5
    assert str(whole_system(replace(CALIBRATION, benchmark="llama31_8b"))).startswith("dgxh100_n1 would take ")
    assert whole_system(replace(CALIBRATION, true_width=False)) is None
    assert whole_system(replace(CALIBRATION, accelerator="")) is None
    write_calibration(slower(1.5), tmp_path / "calibration.json")
    words = ["plan", "gpt3_175b", "--stack", "megatron", "--json"]
    assert main(words) == 0
    assert main([*words, "--calibration", str(tmp_path / "calibration.json")]) == 0
    plain, calibrated = (json.loads(line)["step_s"] for line in capsys.readouterr().out.splitlines())
    assert calibrated != plain
    with pytest.raises(InputError, match="measured on H100 SXM, but system h200_n8 has H200; choose another --system"):
        main([*words, "--system", "h200_n8", "--calibration", str(tmp_path / "calibration.json")])
    with pytest.raises(InputError, match=r"none\.json: No such file"):
        main([*words, "--calibration", str(tmp_path / "none.json")])


IMPOSSIBLE = {
    "--tensor-parallel 5": "tensor_parallel 5 x pipeline_parallel 8 do not divide 512 devices; products that do: 1, 2",
    "--pipeline-parallel 97 --nodes 97": "are more stages than the model's 96 layers; lower --pipeline-parallel",
    "--global-batch-size 2047": "use --global-batch-size 2016 or 2048, or another --micro-batch-size",
    "--micro-batch-size 7": "global_batch_size 1536 is not a multiple of micro_batch_size 7 x 16",
    "--accelerator H900": "accelerator H900: unknown; there are GB200, B300",
    "--what-if nvlnk=2x": "--what-if nvlnk=2x: expected one of matmul, attention, memory, nvlink",
    "--what-if losses=20x": "losses are a share of the time; expected at most losses=",
    "--what-if nvlink=nanx": "expected nvlink= a factor above 0, at most 100",
    "--stack ours --precision fp8": "stack ours has no fp8",
    "--search --precision fp32": "--search: there are no constants of matrix products in FP32",
    "--network-gbit-s 0": "--network-gbit-s 0: expected 0.1 to 100,000",
    "--network-gbit-s inf": "--network-gbit-s inf: expected 0.1 to 100,000",
    "--stack ours --system cpu_p2 --what-if nvlink=2x": "there are no constants for a CPU; --accelerator may be",
    "--calibration /dev/zero": "/dev/zero: device, not a regular file; expected the calibration.json of a slice",
    "--search --accelerator Trillium": "the memory of Trillium is not known; --accelerator may be B300, B200, H200",
    "--what-if tp-overlap=full tp-overlap=off": "--what-if tp-overlap=off: tp-overlap=full is given too; expected each",
    "--accelerator GB200": "--stack nemo, --what-if: there are no constants for GB200; --accelerator may be A100",
    "--accelerator ''": "no constants for a CPU; --accelerator may be ",
    "--device cpu": "--device cpu: system dgxh100_n64 has H100 SXM; omit --device, or choose cpu_p2",
    "--precision fp32": "--precision fp32: stack nemo has bf16 or fp8; choose --precision",
    "--search --accelerator ''": "--search: the memory of the device is not known; --accelerator may be B300, B200",
    "--what-if dp-overlap=full": "expected dp-overlap=off",
    "--what-if nvlink=2": "expected nvlink= a factor above 0, at most 100, such as 2x",
    "--system dgxa100_n64 --precision fp8": "A100-80GB has no products in FP8; --accelerator may be H100 SXM, H200",
    "--search --nodes 1": "no layout of 8 devices can run: .* add --nodes",
}
"""Options, and what they are answered by: one line that says what is possible."""


@pytest.mark.parametrize("words", IMPOSSIBLE)
def test_the_impossible_is_one_line(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=IMPOSSIBLE[words]) as told:
        main(["plan", "gpt3_175b", "--stack", "nemo", *shlex.split(words)])
    assert "\n" not in str(told.value)
    assert capsys.readouterr().out == ""


def test_a_batch_that_fills_the_last_group_of_a_pipeline_in_part(capsys: pytest.CaptureFixture[str]) -> None:
    """63 micro-batches in groups of 8."""
    words = ["plan", "gpt3_175b", "--global-batch-size", "2016", "--pipeline-chunks", "6", "--stack", "megatron"]
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step_s"] > 0
