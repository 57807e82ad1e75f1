"""Messages of data parallelism travel beside computation, as the plan says: counted by the dry run's own trace."""

import dataclasses
from typing import Any

import pytest

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.benchmarks import LLAMA31_8B
from benchmark.config.system_config import System
from benchmark.config.systems import SYSTEMS
from benchmark.planning.dry_run.examine_rank import examine
from benchmark.planning.dry_run.rank_report import MessageCount, RankReport
from benchmark.planning.step_model.block_times import layer_sizes
from benchmark.planning.step_model.message_groups import group_weights
from benchmark.planning.step_model.workload import workload_of
from model.decoder_sizes import DecoderSizes
from tests.benchmark.tiny import in_processes

LAYERS = 3
SIZES = dataclasses.replace(LLAMA31_8B.model, num_layers=LAYERS)
TABLE = SIZES.padded_vocab_size * SIZES.hidden_size
TENSORS_OF_LAYER = 9
"""Seven matrices and two norms."""
TENSORS = TENSORS_OF_LAYER * LAYERS + 3
"""Tensors of the model: its layers', two tables, the final norm."""
FORWARD_FLOPS = 2 * SIZES.seq_length * (SIZES.layer_matrix_weights + 2 * SIZES.seq_length * SIZES.hidden_size)
"""FLOPs of a layer's forward pass. The backward pass has twice as many or more."""


def run_of(sizes: DecoderSizes, micro_batches: int = 2, **topology: Any) -> tuple[Benchmark, System]:
    """Return a run on one node."""
    one_node = dataclasses.replace(SYSTEMS["dgxh100_n8"], nodes=1, pipeline_parallel=1, micro_batch_size=1)
    system = dataclasses.replace(one_node, **topology)
    batch = micro_batches * system.data_parallel
    benchmark = dataclasses.replace(LLAMA31_8B, model=sizes, global_batch_size=batch, start_global_batch_size=batch)
    return benchmark, system


def report_of(sizes: DecoderSizes = SIZES, **topology: Any) -> RankReport:
    (report,) = in_processes(1, examine, *run_of(sizes, **topology), "bf16", "first rank", 0)
    assert isinstance(report, RankReport)
    return report


def messages(report: RankReport, kind: str) -> dict[int, MessageCount]:
    """Return the messages between data-parallel ranks in a step, by the number of values of the whole tensor."""
    itemsize = {"all-gather": 2, "reduce-scatter": 4}[kind]
    return {one.bytes // itemsize: one for one in report.per_step.messages if (one.kind, one.axis) == (kind, "shard")}


@pytest.mark.slow
@pytest.mark.parametrize("tensor_parallel", [1, 2])
def test_the_first_group_alone_travels_without_computation_beside_it(tensor_parallel: int) -> None:
    """The first group has the words' table and a layer. Its values are needed at once, and its gradients are complete
    last. The messages of each later group have at least a layer's forward pass beside them."""
    report = report_of(tensor_parallel=tensor_parallel)
    for kind in ("all-gather", "reduce-scatter"):
        by_size = messages(report, kind)
        table = by_size.pop(TABLE // tensor_parallel)
        assert (table.calls, table.alone) == (2, 1)
        assert sum(message.calls for message in by_size.values()) == TENSORS - 2
        assert sum(message.alone for message in by_size.values()) == TENSORS_OF_LAYER
        for message in by_size.values():
            hidden_calls = message.calls - message.alone
            assert message.flops_beside >= hidden_calls * FORWARD_FLOPS / tensor_parallel


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layers", "topology"),
    [
        (3, {"tensor_parallel": 2}),
        (5, {"tensor_parallel": 4}),
        (4, {"tensor_parallel": 2, "pipeline_parallel": 2, "pipeline_chunks": 2, "micro_batches": 4}),
    ],
    ids=["a group per layer", "a group of two layers", "pipeline"],
)
def test_the_plan_exposes_the_share_of_bytes_that_the_trace_counts(layers: int, topology: dict[str, Any]) -> None:
    sizes = dataclasses.replace(SIZES, num_layers=layers)
    benchmark, system = run_of(sizes, **topology)
    work = workload_of(sizes, benchmark.global_batch_size, system, stack="ours", precision="bf16")
    weights = group_weights(work)
    report = report_of(sizes, **topology)
    for kind in ("all-gather", "reduce-scatter"):
        counts = [count for count in report.per_step.messages if (count.kind, count.axis) == (kind, "shard")]
        exposed_bytes = sum(count.bytes * count.alone for count in counts)
        all_bytes = sum(count.bytes * count.calls for count in counts)
        assert exposed_bytes / all_bytes == pytest.approx(weights[0] / sum(weights), rel=1e-3)


@pytest.mark.slow
def test_a_slot_of_the_pipeline_exposes_its_first_gather() -> None:
    """As the plan says. Messages between stages travel beside the weight gradient of a block's first product."""
    sizes = dataclasses.replace(SIZES, num_layers=8)
    benchmark, system = run_of(sizes, 16, tensor_parallel=2, pipeline_parallel=4, pipeline_chunks=2)
    (report,) = in_processes(1, examine, benchmark, system, "bf16", "a rank between the ends", 2)
    work = workload_of(sizes, benchmark.global_batch_size, system, stack="ours", precision="bf16")
    counts = {(count.axis, count.kind): count for count in report.per_micro_batch.messages}
    exposed = {key: count.alone for key, count in counts.items() if count.alone}
    assert exposed == {("tensor", "all-gather"): system.pipeline_chunks}
    inputs, outputs = next(iter(layer_sizes(work).values()))
    for kind in ("send", "receive"):
        message = counts["pipeline", kind]
        assert message.calls == 2 * system.pipeline_chunks
        assert message.flops_beside == message.calls * 2 * work.tokens * inputs * outputs
