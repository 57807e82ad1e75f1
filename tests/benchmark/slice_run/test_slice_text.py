import dataclasses

import pytest

from benchmark.slice_run.slice_text import format_slice
from tests.benchmark.slice_run.samples import result_on


@pytest.mark.parametrize("device", ["NVIDIA H100 80GB HBM3", "cpu"])
def test_lines_are_short(device: str) -> None:
    assert max(map(len, format_slice(*result_on(device)).splitlines())) < 120


def test_a_gpu_s_result_has_all_of_it() -> None:
    text = format_slice(*result_on("NVIDIA H100 80GB HBM3"))
    for phrase in (
        "rehearsal: 2 of 4 layers on 2 x NVIDIA H100 80GB HBM3",
        "3.000 s, median of 3 (2.000 s to 4.000 s)",
        "% of 989.4 (MFU)",
        "1,500 MHz at least, of 1,980; 690 W at most, of 700; 65 °C",
        "1.00 GiB at the peak, dry run 0.88 GiB (ratio 1.138); 3.00 GiB reserved; rank 0, every rank",
        "time in kernels of one step, rank 0, 1,234 of them",
        "matmul               1.500 s   71.4%",
        "of no known kind: mystery_kernel",
        "200 ms: nothing else ran",
        "200 ms per micro-batch to queue it",
        "matmul, tensor 1        0.6667 TFLOP/s over all shapes; forward 1, weight gradient 0.5",
        "all-gather          1.049 GB/s of 1 MiB, 2 ranks",
    ):
        assert phrase in text, text
    assert "NOT" not in text


def test_what_says_nothing_of_the_benchmark_is_marked() -> None:
    result, calibration = result_on("cpu")
    text = format_slice(dataclasses.replace(result, true_width=False, skipped_steps=2), calibration)
    assert "NOT the true width, which is 128" in text
    assert "NOT a sound step: the gradient was not finite in 2 steps" in text
    assert "MFU" not in text
    assert "the process grew by 1.00 GiB, libraries included; dry run 0.88 GiB; rank 0, every rank" in text
    assert "time in operators of one step" in text


def test_a_profiler_that_saw_nothing_is_told() -> None:
    result, calibration = result_on("cpu")
    text = format_slice(dataclasses.replace(result, by_kind_s={}), calibration)
    assert "no kernels: the profiler recorded none" in text
