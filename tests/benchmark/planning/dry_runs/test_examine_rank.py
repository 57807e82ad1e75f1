"""A step of each kind of rank on a GPU that is not there: what it may not do, and what is counted of it."""

import dataclasses
from typing import Any

import pytest

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import RunConfig
from benchmark.config.system_config import System
from benchmark.config.systems import SYSTEMS
from benchmark.planning.dry_runs.dry_run import kinds_of_ranks
from benchmark.planning.dry_runs.examine_rank import counted_micro_batches, examine
from benchmark.planning.dry_runs.rank_report import RankReport
from benchmark.planning.fake.operator_costs import MatmulShape
from benchmark.training.step import train_step
from model.gpt3_config import GPT3Config
from tests.benchmark.tiny import in_processes

MODEL = GPT3Config(
    num_layers=8, hidden_size=256, num_attention_heads=8, seq_length=128, vocab_size=1000, padded_vocab_size=1024
)
BENCHMARK = dataclasses.replace(GPT3_175B, model=MODEL, global_batch_size=2048, start_global_batch_size=2048)
ONE_NODE = dataclasses.replace(
    SYSTEMS["dgxh100_n8"], nodes=1, micro_batch_size=1, tensor_parallel=1, pipeline_parallel=1, recompute="selective"
)
KEPT_LOSS_BYTES = 8
"""Of a micro-batch, on ranks that have its loss: the number, and its copy when all are put together."""


def config(system: System, num_layers: int = MODEL.num_layers, **topology: Any) -> RunConfig:
    benchmark = dataclasses.replace(BENCHMARK, model=dataclasses.replace(MODEL, num_layers=num_layers))
    made = RunConfig(benchmark=benchmark, system=dataclasses.replace(system, **topology))
    made.require_fit()
    return made


def examined(made: RunConfig, rank: int) -> RankReport:
    (found,) = in_processes(1, examine, made, "some rank", rank)
    assert isinstance(found, RankReport)
    return found


PIPELINE = config(ONE_NODE, num_layers=2, tensor_parallel=2, pipeline_parallel=2)
RANKS: dict[str, tuple[RunConfig, int]] = {
    "dgxh100_n64, between": (config(SYSTEMS["dgxh100_n64"], pipeline_chunks=1), 64),
    "dgxh100_n64, last": (config(SYSTEMS["dgxh100_n64"], pipeline_chunks=1), 511),
    "pipeline, first": (PIPELINE, 1),
    "interleaved, last": (config(ONE_NODE, num_layers=4, pipeline_parallel=2, pipeline_chunks=2), 7),
    "replicas": (config(ONE_NODE, num_layers=1, tensor_parallel=2, replicas=2), 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RANKS)
def test_the_host_waits_once_and_memory_does_not_grow(name: str) -> None:
    """Of the step itself; that nothing is on the wrong device, or only for CPUs, is seen by its not failing."""
    made, rank = RANKS[name]
    found = examined(made, rank)
    (wait,) = found.host_waits
    assert wait.where.startswith("benchmark/training/step.py:") and wait.where.endswith(f"in {train_step.__name__}")
    assert abs(found.peak_bytes_per_micro_batch) <= KEPT_LOSS_BYTES
    assert abs(found.after_step_bytes_per_micro_batch) <= KEPT_LOSS_BYTES
    assert abs(found.after_evaluation_bytes) <= KEPT_LOSS_BYTES
    assert found.activation_bytes > 0
    attention = {one.shape.kernel for one in found.per_micro_batch.attention}
    assert attention == {"cudnn_attention"}


@pytest.mark.slow
def test_work_of_a_micro_batch_by_hand() -> None:
    """A layer between the ends: four linear layers each, a product forward and two backward. Two of a layer's
    gathers are made again, for that is selective recomputation."""
    found = examined(config(ONE_NODE, num_layers=3, nodes=3, tensor_parallel=2, pipeline_parallel=3), 8).per_micro_batch
    tokens, hidden, half = 128, 256, 128
    forward = {
        (tokens, 3 * half, hidden),
        (tokens, hidden, half),
        (tokens, 4 * half, hidden),
        (tokens, hidden, 4 * half),
    }
    expected: dict[tuple[int, int, int, str], int] = {}
    for m, n, k in forward:
        for key in ((m, n, k, "bfloat16"), (m, k, n, "bfloat16"), (n, k, m, "float32")):
            expected[key] = expected.get(key, 0) + 1
    shapes: list[tuple[MatmulShape, int]] = [(one.shape, one.calls) for one in found.matmuls]
    assert {(s.m, s.n, s.k, s.out_dtype): calls for s, calls in shapes} == expected
    assert sum(one.calls for one in found.attention) == 2
    tensor = {(one.kind, one.bytes): one.calls for one in found.messages if one.axis == "tensor"}
    assert tensor == {("all-gather", tokens * hidden * 2): 6, ("reduce-scatter", tokens * hidden * 2): 4}
    exposed = sum(one.alone for one in found.messages if one.axis == "tensor")
    assert exposed < 6  # the others are begun before a product and waited for after it
    sent = {one.kind: (one.calls, one.bytes) for one in found.messages if one.axis == "pipeline"}
    assert sent == dict.fromkeys(("send", "receive"), (2, tokens // 2 * hidden * 2))


def test_kinds_of_ranks_and_how_much_is_run() -> None:
    pipeline = RANKS["dgxh100_n64, last"][0]
    assert kinds_of_ranks(pipeline) == {
        "first of the pipeline": 0,
        "between, 1 layers": 64,
        "last of the pipeline": 448,
    }
    assert [counted_micro_batches(pipeline, rank) for rank in (0, 1, 7)] == [(17, 18), (15, 16), (3, 4)]
    interleaved = RANKS["interleaved, last"][0]
    assert [counted_micro_batches(interleaved, rank) for rank in (0, 1)] == [(4, 6), (4, 6)]
    assert kinds_of_ranks(RANKS["replicas"][0]) == {"every rank": 0}
