"""What a slice found, as data and for people."""

import dataclasses

import pytest

from benchmark.config.benchmarks import REHEARSAL
from benchmark.planning.slice.slice_result import slice_lines
from model.flops import part_flops_per_token
from tests.benchmark.planning.slice.samples import result_on


def test_a_gpu_s_result_has_all_of_it() -> None:
    result, calibration = result_on("NVIDIA H100 80GB HBM3")
    flops = part_flops_per_token(REHEARSAL.model, num_layers=2, output_columns=1000)
    assert (result["steps_s"], result["step_s"]) == ((2.0, 4.0, 3.0), 3.0)  # the slowest process's
    assert result["tflops_per_device"] == pytest.approx(4 * 128 / 3.0 * flops / 2 / 1e12)
    assert result["mfu"] == pytest.approx(result["tflops_per_device"] / 989.4)
    lines = list(slice_lines(result, calibration))
    text = "\n".join(lines)
    for phrase in (
        "rehearsal: 2 of 4 layers on 2 x NVIDIA H100 80GB HBM3",
        "3.000 s, median of 3 (2.000 s to 4.000 s)",
        "171 tokens/s",
        "% of 989.4 (MFU)",
        "4.0 s from the process group's start",
        "1,500 MHz at least, of 1,980; 690 W at most, of 700; 65 °C",
        "1.00 GiB at the peak, dry run 0.88 GiB (ratio 1.138); 3.00 GiB reserved; rank 0, every rank",
        "8 of 8 fused kernels compiled and proved in 5.0 s",
        "time in kernels of one step, rank 0, 1,234 of them",
        "matmul               1.500 s   71.4%",
        "of no known kind: mystery_kernel",
        "200 ms: nothing else ran",
        "200 ms per micro-batch to queue it",
        "matmul, tensor 1        0.6667 TFLOP/s over all shapes; forward 1.000, weight gradient 0.5000",
        "all-gather          1.049 GB/s of 1 MiB, 2 ranks",
    ):
        assert phrase in text, text
    assert "NOT" not in text
    assert max(map(len, lines)) < 120


def test_an_fp8_result_names_its_peak_and_the_formats_of_its_products() -> None:
    result, calibration = result_on("NVIDIA H100 80GB HBM3", precision="fp8")
    assert (result["precision"], result["fp8_weight_gradients"]) == ("fp8", True)
    assert result["mfu"] == pytest.approx(result["tflops_per_device"] / 1978.8)
    matmuls = (dataclasses.replace(calibration.matmuls[0], precision="fp8"), *calibration.matmuls[1:])
    lines = list(slice_lines(result, dataclasses.replace(calibration, matmuls=matmuls)))
    text = "\n".join(lines)
    for phrase in (
        "80GB HBM3; hidden 128, 4 heads, sequence 128, fp8",
        "% of FP8's 1,978.8 (MFU)",
        "BF16 matmul, TP 1       0.5000 TFLOP/s over all shapes; weight gradient 0.5000",
        "FP8 matmul, TP 1         1.000 TFLOP/s over all shapes; forward 1.000",
    ):
        assert phrase in text, text
    assert max(map(len, lines)) < 120


def test_the_calibration_has_the_rates_and_the_step() -> None:
    result, calibration = result_on("NVIDIA H100 80GB HBM3")
    assert (calibration.accelerator, calibration.true_width, calibration.precision) == ("H100 SXM", True, "bf16")
    assert calibration.matmuls[0].tflops == pytest.approx(1.0)
    assert calibration.step.by_kind_s == result["by_kind_s"]
    assert (calibration.step.clock_mhz, calibration.step.power_w) == (1500.0, 690.0)
    assert (calibration.step.compiled_kernels, calibration.step.seq_length) == (False, 128)
    assert calibration.collectives[0].kind == "all-gather"


def test_a_cpu_has_no_peak_and_no_kernels_and_what_is_not_the_benchmark_is_marked() -> None:
    result, calibration = result_on("cpu")
    assert [result[name] for name in ("mfu", "kernels", "exposed_communication_s", "clocks")] == [None] * 4
    assert (calibration.accelerator, calibration.cuda, calibration.step.by_kind_s) == ("", "", {})
    text = "\n".join(slice_lines({**result, "true_width": False, "skipped_steps": 2}, calibration))
    for phrase in (
        "NOT the true width, which is 128",
        "NOT a sound step: the gradient was not finite in 2 steps",
        "the process grew by 1.00 GiB, libraries included; dry run 0.88 GiB; rank 0, every rank",
        "time in operators of one step",
    ):
        assert phrase in text
    assert "MFU" not in text
    assert any("the profiler recorded none" in line for line in slice_lines({**result, "by_kind_s": {}}, None))
