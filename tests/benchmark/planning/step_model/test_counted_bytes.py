"""The bytes of a block's elementwise kernels, and of its memory: by the training code on the fake device, and by the
step model."""

import dataclasses
from functools import cache

import pytest

from benchmark.config.benchmarks import BENCHMARKS
from benchmark.config.number_formats import Precision
from benchmark.config.system_config import System
from benchmark.config.systems import SYSTEMS
from benchmark.planning.dry_run.dry_run import dry_run
from benchmark.planning.step_model.block_times import fused_bytes, layer_sizes
from benchmark.planning.step_model.fp8_operands import cast_work, sums_of_products
from benchmark.planning.step_model.memory_formula import kept_per_block
from benchmark.planning.step_model.workload import Workload, workload_of
from model.decoder_sizes import Recompute

BY_MEMORY = ("elementwise", "reduction", "copy")
MICRO_BATCHES = 8
SHAPES = [("gpt3_175b", 4, 2), ("llama31_8b", 2, 1)]


def system_of(tensor_parallel: int, micro_batch_size: int, **fields: object) -> System:
    changed = {"nodes": 1, "pipeline_parallel": 1, "pipeline_chunks": 1, "recompute": "none", **fields}
    base = dataclasses.replace(SYSTEMS["dgxh100_n8"], tensor_parallel=tensor_parallel, pipeline_chunks=1)
    return dataclasses.replace(base, micro_batch_size=micro_batch_size, **changed)  # type: ignore[arg-type]


@cache
def counted(name: str, system: System, precision: Precision) -> tuple[int, int]:
    """Return the bytes that the kernels of a block move, and the bytes that it adds to the peak; at full width, the
    difference of two depths is one block."""
    model, moved, peaks = BENCHMARKS[name].model, [], []
    batch_size = MICRO_BATCHES * system.micro_batch_size * system.data_parallel
    for layers in (1, 2):
        shallow = dataclasses.replace(model, num_layers=layers)
        benchmark = dataclasses.replace(
            BENCHMARKS[name], model=shallow, global_batch_size=batch_size, start_global_batch_size=batch_size
        )
        (report,) = dry_run(benchmark, system, precision).reports
        moved.append(sum(kernel.bytes for kernel in report.per_micro_batch.kernels if kernel.kind in BY_MEMORY))
        peaks.append(report.peak_bytes)
    return moved[1] - moved[0], peaks[1] - peaks[0]


def planned(name: str, system: System, precision: Precision) -> Workload:
    batch_size = 1024 * system.micro_batch_size * system.data_parallel
    model = dataclasses.replace(BENCHMARKS[name].model, num_layers=2)
    return workload_of(model, batch_size, system, stack="ours", precision=precision)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tensor_parallel", "micro_batch_size", "compiled"),
    [(*SHAPES[0], True), (*SHAPES[1], True), (*SHAPES[1], False)],
)
def test_bytes_over_fused_ones_are_what_the_dry_run_counts(
    name: str, tensor_parallel: int, micro_batch_size: int, compiled: bool
) -> None:
    """Without recomputation."""
    system, model = system_of(tensor_parallel, micro_batch_size, compiled_kernels=compiled), BENCHMARKS[name].model
    fused = sum(fused_bytes(planned(name, system, "bf16")))
    expected = model.compiled_kernels if compiled else model.separate_kernels
    assert counted(name, system, "bf16")[0] / fused == pytest.approx(expected, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tensor_parallel", "micro_batch_size", "recompute", "fp8_weight_gradients", "compiled_kernels"),
    [
        (*SHAPES[0], "none", True, True),
        (*SHAPES[0], "selective", True, True),
        (*SHAPES[0], "selective", True, False),
        (*SHAPES[0], "full", False, True),
        (*SHAPES[1], "none", True, True),
        (*SHAPES[1], "none", False, True),
        (*SHAPES[1], "full", False, False),
    ],
)
def test_fp8_adds_the_casts_and_the_memory_that_the_dry_run_counts(
    name: str,
    tensor_parallel: int,
    micro_batch_size: int,
    recompute: Recompute,
    fp8_weight_gradients: bool,
    compiled_kernels: bool,
) -> None:
    """Kernels that are not compiled read a tensor for its largest value even where no cast needs it."""
    system = system_of(
        tensor_parallel,
        micro_batch_size,
        recompute=recompute,
        fp8_weight_gradients=fp8_weight_gradients,
        compiled_kernels=compiled_kernels,
    )
    work = planned(name, system, "fp8")
    layers = layer_sizes(work)
    expected = sum(part.bytes for part in cast_work(work, layers))
    weights = [inputs * outputs for inputs, outputs in layers.values()]
    waiting = 0
    if fp8_weight_gradients:
        expected += sum(sums_of_products(work, of_layer)[1] for of_layer in weights)
        waiting = 2 * (work.weight_terms - 1) * sum(weights)
    moved, held = counted(name, system, "fp8")
    moved_in_bf16, held_in_bf16 = counted(name, dataclasses.replace(system, fp8_weight_gradients=False), "bf16")
    assert moved - moved_in_bf16 == pytest.approx(expected, rel=0.01)
    if recompute == "none":  # else no block keeps what its products read, and the peak has one block's operands
        kept, kept_in_bf16 = (kept_per_block(planned(name, system, precision)) for precision in ("fp8", "bf16"))
        assert held - held_in_bf16 == pytest.approx(kept - kept_in_bf16 + waiting, abs=0.01 * kept_in_bf16)
