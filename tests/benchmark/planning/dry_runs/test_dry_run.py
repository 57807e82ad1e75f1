"""Dry runs: what they count is what runs do."""

import dataclasses
from typing import Any

import pytest

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import RunConfig
from benchmark.config.system_config import System
from benchmark.config.systems import SYSTEMS
from benchmark.planning.dry_runs.dry_run import dry_run
from benchmark.planning.dry_runs.rank_report import RankReport
from model.flops import num_parameters
from model.gpt3_config import GPT3Config
from tests.support import assert_refused, command

MODEL = GPT3Config(
    num_layers=4, hidden_size=256, num_attention_heads=8, seq_length=128, vocab_size=1000, padded_vocab_size=1024
)
BENCHMARK = dataclasses.replace(GPT3_175B, model=MODEL, global_batch_size=64, start_global_batch_size=64)
BASE = dataclasses.replace(
    SYSTEMS["dgxh100_n8"], nodes=1, micro_batch_size=1, tensor_parallel=1, pipeline_parallel=1, recompute="none"
)


def reports(num_layers: int = MODEL.num_layers, **topology: Any) -> list[RankReport]:
    system: System = dataclasses.replace(BASE, **topology)
    benchmark = dataclasses.replace(BENCHMARK, model=dataclasses.replace(MODEL, num_layers=num_layers))
    config = RunConfig(benchmark=benchmark, system=system)
    config.require_fit()
    return dry_run(config).reports


TOPOLOGIES: dict[str, dict[str, Any]] = {
    "sharded": {},
    "replicas": {"replicas": 2},
    "tensor parallel": {"tensor_parallel": 4},
    "pipeline": {"pipeline_parallel": 4, "tensor_parallel": 2},
    "interleaved": {"pipeline_parallel": 4, "pipeline_chunks": 2, "num_layers": 8},
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "sharded" else pytest.mark.slow) for name in TOPOLOGIES]
)
def test_flops_are_the_formulas_and_parameters_are_all_there(name: str) -> None:
    topology = TOPOLOGIES[name]
    found = reports(**topology)
    for report in found:
        assert report.flops_per_micro_batch == pytest.approx(report.formula_flops_per_micro_batch, rel=1e-12)
        assert report.optimizer_bytes == 2 * report.parameter_bytes
        assert report.activation_bytes > 0
    pipeline_ranks, layers = topology.get("pipeline_parallel", 1), topology.get("num_layers", MODEL.num_layers)
    assert [report.rank for report in found] == ([0, 2, 6] if pipeline_ranks > 1 else [0])
    data_parallel = 8 // pipeline_ranks // topology.get("tensor_parallel", 1)
    by_rank = [found[0]] + [found[1]] * (pipeline_ranks - 2) + [found[-1]] if pipeline_ranks > 1 else found
    assert sum(report.layers for report in by_rank) == layers
    stored = sum(report.parameter_bytes for report in by_rank) / 4 * data_parallel / topology.get("replicas", 1)
    # Replicated LayerNorms, biases and positions count on each tensor-parallel rank, the word table on both ends.
    copies = 1024 * 256 / topology.get("tensor_parallel", 1) if pipeline_ranks > 1 else 0
    replicated = (layers * 6 + 2 + 2048) * 256
    whole = num_parameters(dataclasses.replace(MODEL, num_layers=layers)) - replicated
    assert stored == pytest.approx(whole / topology.get("tensor_parallel", 1) + replicated + copies, rel=1e-3)


def traffic(report: RankReport) -> dict[tuple[str, str], tuple[int, int]]:
    return {(sent.kind, sent.axis): (sent.calls, sent.bytes) for sent in report.traffic}


@pytest.mark.slow
def test_messages_are_those_of_the_algorithms() -> None:
    """Counted by hand: 4 layers over 2 pipeline ranks; 2 tensor- and 2 data-parallel ranks, 32 micro-batches."""
    first, last = reports(pipeline_parallel=2, tensor_parallel=2)
    micro_batches, hidden = 32, 128 * 256 * 2  # bytes of one sample's hidden state, the whole sequence
    # Each layer gathers twice forward and twice backward; the embedding's sum is scattered, its gradient gathered.
    assert traffic(first)["all-gather", "tensor"] == (micro_batches * 9, micro_batches * 9 * hidden)
    assert traffic(first)["reduce-scatter", "tensor"] == (micro_batches * 9, micro_batches * 9 * hidden)
    assert traffic(first)["all-gather", "shard"][0] == 2 * 12 + 2  # each parameter once a step
    per_rank = 2 * 12 * 256**2 // 2 + 1024 * 256 // 2 + 2048 * 256
    assert traffic(first)["all-gather", "shard"][1] == pytest.approx(2 * per_rank, rel=0.01)
    assert traffic(first)["reduce-scatter", "shard"][1] == 2 * traffic(first)["all-gather", "shard"][1]
    # Maximum and sum of the logits for each micro-batch; LayerNorms, row biases and positions once a step.
    in_tracker = {key: calls for key, (calls, _) in traffic(last).items() if key[1] == "tensor"}
    assert in_tracker["all-reduce", "tensor"] >= 2 * micro_batches


@pytest.mark.slow
def test_recomputation_trades_memory_for_work() -> None:
    by_kind = {kind: reports(num_layers=2, recompute=kind)[0] for kind in ("none", "selective", "full")}
    memory = [by_kind[kind].activation_bytes for kind in ("none", "selective", "full")]
    assert memory[0] > 1.2 * memory[1] > 1.2 * 1.2 * memory[2]
    assert by_kind["selective"].flops_per_micro_batch == by_kind["none"].flops_per_micro_batch
    blocks = 2 * (16 * 256**2 + 4 * 128 * 256) * 128  # forward, but for the block's last product
    assert by_kind["full"].flops_per_micro_batch - by_kind["none"].flops_per_micro_batch == blocks


@pytest.mark.slow
def test_memory_that_does_not_suffice_is_refused_with_the_numbers() -> None:
    words = "--system dgxh100_n8 --num-layers 2 --hidden-size 49152 --num-attention-heads 384 --nodes 1 --dry-run"
    layout = "--micro-batch-size 1 --pipeline-parallel 1 --tensor-parallel 1"
    done = command("benchmark", "train", "gpt3_175b", *words.split(), *layout.split(), timeout=280)
    assert_refused(done, "rank 0 (every rank) needs ", "H100 SXM has 80 GB", "Raise --tensor-parallel", status=1)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["the", "same", "for", "any", "number", "of", "micro-batches"] in lines
    kernels = {line[0]: int(line[1]) for line in lines if line and line[0] in ("matmul", "attention")}
    assert kernels == {"matmul": 2 * 12 + 2 * 3, "attention": 2 * 2}  # logits in two turns
    assert [line[:2] for line in lines if line[:1] == ["all-gather"]] == [["all-gather", "shard"]]
    assert ["the", "host", "waits", "once", "a", "step:", ".tolist()", "at"] in [line[:8] for line in lines]
