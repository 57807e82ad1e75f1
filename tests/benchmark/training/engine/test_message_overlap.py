"""Messages of data parallelism without a pipeline travel beside computation: counted by the dry run's own trace."""

import dataclasses

import pytest

from benchmark.config.benchmarks import LLAMA31_8B
from benchmark.config.systems import SYSTEMS
from benchmark.planning.dry_run.examine_rank import examine
from benchmark.planning.dry_run.rank_report import MessageCount, RankReport
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


def report_of(tensor_parallel: int, micro_batches: int = 2) -> RankReport:
    batch = micro_batches * 8 // tensor_parallel
    benchmark = dataclasses.replace(LLAMA31_8B, model=SIZES, global_batch_size=batch, start_global_batch_size=batch)
    one_node = dataclasses.replace(SYSTEMS["dgxh100_n8"], nodes=1, pipeline_parallel=1, micro_batch_size=1)
    system = dataclasses.replace(one_node, tensor_parallel=tensor_parallel)
    (report,) = in_processes(1, examine, benchmark, system, "bf16", "every rank", 0)
    assert isinstance(report, RankReport)
    return report


def messages(report: RankReport, kind: str) -> dict[int, MessageCount]:
    """Return the messages between data-parallel ranks in a step, by the number of values of the whole tensor."""
    itemsize = {"all-gather": 2, "reduce-scatter": 4}[kind]
    return {one.bytes // itemsize: one for one in report.per_step.messages if (one.kind, one.axis) == (kind, "shard")}


@pytest.mark.slow
@pytest.mark.parametrize("tensor_parallel", [1, 2])
@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter"])
def test_the_first_group_alone_travels_without_computation_beside_it(kind: str, tensor_parallel: int) -> None:
    """The first group has the words' table and a layer. Its values are needed at once, and its gradients are complete
    last. The messages of each later group have at least a layer's forward pass beside them."""
    by_size = messages(report_of(tensor_parallel), kind)
    table = by_size.pop(TABLE // tensor_parallel)
    assert (table.calls, table.alone) == (2, 1)
    assert sum(message.calls for message in by_size.values()) == TENSORS - 2
    assert sum(message.alone for message in by_size.values()) == TENSORS_OF_LAYER
    for message in by_size.values():
        hidden_calls = message.calls - message.alone
        assert message.flops_beside >= hidden_calls * FORWARD_FLOPS / tensor_parallel
