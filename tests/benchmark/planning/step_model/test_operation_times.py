"""Single operations against measurements, memory against the paper's formula, and the table of constants."""

import dataclasses
from collections.abc import Iterable

import pytest

from benchmark.config.accelerators import ACCELERATORS, RESERVE
from benchmark.config.benchmarks import BENCHMARKS
from benchmark.config.number_formats import Precision
from benchmark.config.systems import LAYOUTS, system_called
from benchmark.planning.step_model.machine_constants import Rates, committed_constants
from benchmark.planning.step_model.memory_formula import kept_per_block, memory_need
from benchmark.planning.step_model.operation_times import attention_s, matmul_s
from benchmark.planning.step_model.stacks import STACKS
from benchmark.planning.step_model.workload import workload_of
from foundation.errors import InputError
from tests.benchmark.planning.step_model.works import decoder, gpt3_work

TABLE = committed_constants()
H100, A100 = (TABLE.rates(accelerator, "nemo") for accelerator in ("H100 SXM", "A100-80GB"))


def test_large_products_reach_what_is_measured_in_a_steady_state() -> None:
    """Azure/AI-benchmarking-guide, H100 in FP8: 1217 TFLOP/s at 4,096 squared, 1290 at 8,192, 1377 at 16,384."""

    def tflops(size: int, *, fp8: bool) -> float:
        return 2 * size**3 / matmul_s(H100, (size, size, size), fp8=fp8) / 1e12

    for size, measured in ((4096, 1217), (8192, 1290), (16384, 1377)):
        assert tflops(size, fp8=True) == pytest.approx(measured, rel=0.12)
    assert tflops(1024, fp8=False) < 0.55 * tflops(8192, fp8=False)


def test_waves_depth_and_accumulation_cost() -> None:
    one_wave = 128 * 12, 256 * 11, 4096  # 132 tiles for 132 multiprocessors
    assert matmul_s(H100, (128 * 12, 256 * 12, 4096)) > 1.12 * matmul_s(H100, one_wave)
    assert matmul_s(H100, (4096, 4096, 512)) > 1.2 * matmul_s(H100, (4096, 4096, 8192)) / 16
    plain, adding = (matmul_s(H100, (12288, 9216, 2048), extra=extra) for extra in (0, 8 * 12288 * 9216))
    assert plain * 1.02 < adding < plain * 1.4


@pytest.mark.parametrize(("seq", "measured"), [(512, 163), (1024, 221), (2048, 265), (4096, 294), (16384, 328)])
def test_flash_attention_2_on_h100(seq: int, measured: float) -> None:
    """Both passes, causal, head 128, 16,384 tokens: the repository's picture of FlashAttention 2 on H100."""
    seconds = sum(attention_s(H100, sequences=16384 / seq, heads=16, seq=seq, head=128, kind="flash"))
    assert 3.5 * 2 * 16384 * 16 * 128 * seq / seconds / 1e12 == pytest.approx(measured, rel=0.06)


def test_cudnn_is_faster_on_hopper() -> None:
    def both(on: Rates, kind: str) -> float:
        return sum(attention_s(on, sequences=1, heads=24, seq=2048, head=128, kind=kind))

    assert both(A100, "cudnn") == both(A100, "flash")
    assert 1.4 < both(H100, "flash") / both(H100, "cudnn") < 1.6


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
@pytest.mark.parametrize(
    ("benchmark", "names"),
    [("gpt3_175b", ("dgxh100_n64", "dgxh100_n128", "h200_n8", "b200_n8")), ("llama31_8b", LAYOUTS["llama31_8b"])],
)
def test_shipped_systems_have_the_memory(benchmark: str, names: Iterable[str], precision: Precision) -> None:
    """By the formula, with the room that a dry run leaves."""
    sizes = BENCHMARKS[benchmark].model
    for name in names:
        system = system_called(name, benchmark)
        assert system.memory_gb is not None
        work = workload_of(sizes, 2048, system, stack="ours", precision=precision)
        assert memory_need(work).total <= 1e9 * system.memory_gb * (1 - RESERVE), name


def test_memory_is_the_papers() -> None:
    """A block keeps 34 s b h without the scores, over tensor-parallel devices (arXiv 2205.05198, section 4.2)."""
    work = gpt3_work("megatron", tensor_parallel=8)
    assert kept_per_block(work) == pytest.approx(2048 * 12288 * 34 / 8)
    assert kept_per_block(work, "full") == pytest.approx(2048 * 12288 * 2 / 8)
    assert kept_per_block(work, "full") < kept_per_block(work, "selective") < kept_per_block(work)
    small, large = (memory_need(gpt3_work("ours", global_batch_size=size)) for size in (2048, 8192))
    assert small == large
    assert memory_need(gpt3_work(pipeline_chunks=1)).activations < memory_need(gpt3_work()).activations
    sharded, kept = (
        memory_need(gpt3_work("ours", pipeline_parallel=1, pipeline_chunks=1, sharding=sharding))
        for sharding in ("fsdp", "zero1")
    )
    assert sharded.weights < kept.weights / 20  # those of two blocks
    assert sharded.total < kept.total
    assert sharded.total == pytest.approx(sum(dataclasses.astuple(sharded)))


def test_the_loss_needs_a_product_of_logits_and_a_tile_at_most() -> None:
    tokens, hidden = 8192, 4096

    def workspace(vocabulary: int) -> float:
        model = decoder(32, hidden, 32, tokens, vocabulary, kv_heads=8, ffn=14336, gated=True)
        work = gpt3_work("ours", micro_batch_size=1, tensor_parallel=1, pipeline_parallel=1, pipeline_chunks=1)
        return memory_need(dataclasses.replace(work, model=model)).workspace - work.code.temporary_bytes

    assert workspace(128256) == workspace(2 * 128256) == 6 * tokens * hidden + 2**30 + 2**28
    assert workspace(50000) == 6 * tokens * hidden + 2 * tokens * 50000 + 2**28
    assert workspace(1024) == 8 * tokens * hidden + 4 * tokens * 14336  # of a block


def test_every_constant_has_a_source_and_a_range() -> None:
    assert set(TABLE.stacks) == set(STACKS)
    for accelerator in TABLE.accelerators:
        for stack in STACKS:
            for constant in dict(TABLE.rates(accelerator, stack).constants).values():
                assert len(constant.source) >= 7
                assert 0 <= constant.low <= constant <= constant.high < 1e6
        peak = ACCELERATORS[accelerator].peak_tflops
        assert 0.5 * peak < TABLE.accelerators[accelerator].matmul_bf16 < 0.9 * peak


def test_another_network() -> None:
    slow = TABLE.rates("H100 SXM", "nemo", network_gbit_s=200)
    assert H100.network_gb_s == pytest.approx(50 * H100.common.network_share)
    assert slow == dataclasses.replace(H100, network_gbit_s=200)
    assert slow.network_gb_s == pytest.approx(H100.network_gb_s / 2)
    with pytest.raises(InputError, match="no constants of accelerators 'TPU'; there are A100-80GB, H100"):
        TABLE.rates("TPU", "nemo")


def test_constants_are_changed_by_their_names() -> None:
    constant = H100.device.matmul_bf16.scaled(2.0, "twice")
    twice = H100.changed({"accelerators.H100 SXM.matmul_bf16": constant, "common.wave_waste": constant})
    assert dict(twice.constants)["accelerators.H100 SXM.matmul_bf16"] is twice.common.wave_waste is constant
    assert (float(constant), constant.low, constant.high, constant.source) == (1464.0, 1200.0, 1580.0, "twice")
    assert constant.backed == H100.device.matmul_bf16.backed
    assert dataclasses.replace(twice, device=H100.device, common=H100.common) == H100
