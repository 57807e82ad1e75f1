"""The bytes of a block's elementwise kernels: by the training code on the fake device, and by the step model."""

import dataclasses

import pytest

from benchmark.config.benchmarks import BENCHMARKS
from benchmark.config.systems import SYSTEMS
from benchmark.planning.dry_run.dry_run import dry_run
from benchmark.planning.step_model.block_times import fused_bytes
from benchmark.planning.step_model.workload import workload_of

BY_MEMORY = ("elementwise", "reduction", "copy")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tensor_parallel", "micro_batch_size", "compiled"),
    [("gpt3_175b", 4, 2, True), ("llama31_8b", 2, 1, True), ("llama31_8b", 2, 1, False)],
)
def test_bytes_over_fused_ones_are_what_the_dry_run_counts(
    name: str, tensor_parallel: int, micro_batch_size: int, compiled: bool
) -> None:
    """At full width, without recomputation; the difference of two depths is one block."""
    system = dataclasses.replace(
        SYSTEMS["dgxh100_n8"],
        nodes=1,
        tensor_parallel=tensor_parallel,
        pipeline_parallel=1,
        pipeline_chunks=1,
        micro_batch_size=micro_batch_size,
        recompute="none",
        compiled_kernels=compiled,
    )
    model, batch_size = BENCHMARKS[name].model, 8 * micro_batch_size * system.data_parallel
    moved = []
    for layers in (1, 2):
        shallow = dataclasses.replace(model, num_layers=layers)
        benchmark = dataclasses.replace(
            BENCHMARKS[name], model=shallow, global_batch_size=batch_size, start_global_batch_size=batch_size
        )
        (report,) = dry_run(benchmark, system, "bf16").reports
        moved.append(sum(kernel.bytes for kernel in report.per_micro_batch.kernels if kernel.kind in BY_MEMORY))
    work = workload_of(model, batch_size, system, stack="ours", precision="bf16")
    expected = model.compiled_kernels if compiled else model.separate_kernels
    assert (moved[1] - moved[0]) / sum(fused_bytes(work)) == pytest.approx(expected, rel=0.01)
