"""Single operations against what was measured of them."""

import pytest

from benchmark.planning.step_model.machine_constants import Rates
from benchmark.planning.step_model.operator_times import attention_s, matmul_s
from tests.benchmark.planning.step_model.works import gpt3_work, rates_of

H100, A100 = rates_of(gpt3_work()), rates_of(gpt3_work("megatron", accelerator="A100-80GB"))


def tflops(size: int, *, fp8: bool) -> float:
    return 2 * size**3 / matmul_s(H100.device, H100.common, (size, size, size), fp8=fp8, extra=0) / 1e12


def test_large_products_reach_what_is_measured_in_a_steady_state() -> None:
    """Azure/AI-benchmarking-guide, H100 in FP8: 1217 TFLOP/s at 4,096 squared, 1290 at 8,192, 1377 at 16,384."""
    for size, measured in ((4096, 1217), (8192, 1290), (16384, 1377)):
        assert tflops(size, fp8=True) == pytest.approx(measured, rel=0.12)
    assert tflops(1024, fp8=False) < 0.55 * tflops(8192, fp8=False)


def test_waves_depth_and_accumulation_cost() -> None:
    def product_s(sizes: tuple[int, int, int], extra: float = 0) -> float:
        return matmul_s(H100.device, H100.common, sizes, fp8=False, extra=extra)

    one_wave = 128 * 12, 256 * 11, 4096  # 132 tiles for 132 multiprocessors
    assert product_s((128 * 12, 256 * 12, 4096)) > 1.12 * product_s(one_wave)
    assert product_s((4096, 4096, 512)) > 1.2 * product_s((4096, 4096, 8192)) / 16
    plain, adding = product_s((12288, 9216, 2048)), product_s((12288, 9216, 2048), extra=8 * 12288 * 9216)
    assert plain * 1.02 < adding < plain * 1.4


@pytest.mark.parametrize(("seq", "measured"), [(512, 163), (1024, 221), (2048, 265), (4096, 294), (16384, 328)])
def test_flash_attention_2_on_h100(seq: int, measured: float) -> None:
    """Both passes, causal, head 128, 16,384 tokens: the repository's picture of FlashAttention 2 on H100."""
    sequences, heads = 16384 / seq, 16
    forward, backward = attention_s(
        H100.device, H100.common, sequences=sequences, heads=heads, seq=seq, head=128, kind="flash"
    )
    flops = 3.5 * 2 * sequences * heads * 128 * seq**2
    assert flops / (forward + backward) / 1e12 == pytest.approx(measured, rel=0.06)


def test_cudnn_is_faster_on_hopper() -> None:
    def both(rates: Rates, kind: str) -> float:
        return sum(attention_s(rates.device, rates.common, sequences=1, heads=24, seq=2048, head=128, kind=kind))

    assert both(A100, "cudnn") == both(A100, "flash")
    assert 1.4 < both(H100, "flash") / both(H100, "cudnn") < 1.6
