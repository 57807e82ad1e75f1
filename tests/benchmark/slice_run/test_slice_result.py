import pytest

from benchmark.config.benchmarks import REHEARSAL
from model.flops import part_flops_per_token
from tests.benchmark.slice_run.samples import result_on


def test_a_step_is_as_long_as_the_slowest_process_s() -> None:
    result, _ = result_on("NVIDIA H100 80GB HBM3")
    assert result.steps_s == (2.0, 4.0, 3.0)
    assert result.step_s == 3.0
    assert result.tokens_per_s == pytest.approx(4 * 128 / 3.0)
    flops = part_flops_per_token(REHEARSAL.model, num_layers=2, output_columns=1000)
    assert result.tflops_per_device == pytest.approx(4 * 128 / 3.0 * flops / 2 / 1e12)
    assert result.mfu == pytest.approx(result.tflops_per_device / 989.4)
    assert result.host_s_per_micro_batch == pytest.approx(0.2)
    assert result.init_s == 4.0
    assert [one.peak_bytes for one in result.memory] == [1 << 30]


def test_the_calibration_has_the_rates_and_the_step() -> None:
    result, calibration = result_on("NVIDIA H100 80GB HBM3")
    assert (calibration.accelerator, calibration.true_width, calibration.precision) == ("H100 SXM", True, "bf16")
    assert calibration.matmuls[0].tflops == pytest.approx(1.0)
    assert calibration.step.by_kind_s == result.by_kind_s
    assert calibration.step.clock_mhz == 1500.0
    assert calibration.collectives[0].kind == "all-gather"


def test_a_cpu_has_no_peak_and_no_kernels() -> None:
    result, calibration = result_on("cpu")
    assert (result.mfu, result.kernels, result.exposed_communication_s, result.clocks) == (None, None, None, None)
    assert result.by_kind_s == {"matmul": 0.3}
    assert (calibration.accelerator, calibration.cuda, calibration.step.by_kind_s) == ("", "", {})
