"""Dry runs: what they count is what runs do, and what a step may not do on a GPU."""

import dataclasses
from functools import cache
from typing import Any, get_args

import pytest
import torch

from benchmark.__main__ import main
from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import RunConfig
from benchmark.config.systems import SYSTEMS
from benchmark.planning.dry_run.dry_run import dry_run, kinds_of_ranks
from benchmark.planning.dry_run.examine_rank import counted_micro_batches, examine
from benchmark.planning.dry_run.rank_report import RankReport
from benchmark.training.step import train_step
from foundation.errors import CheckFailed, InputError
from model.decoder_sizes import DecoderSizes, Recompute
from model.flops import num_parameters
from model.gpt3_config import GPT3Config
from model.llama31_config import Llama31Config
from tests.benchmark.tiny import in_processes

MODEL = GPT3Config(
    num_layers=4, hidden_size=256, num_attention_heads=8, seq_length=128, vocab_size=1000, padded_vocab_size=1024
)
BENCHMARK = dataclasses.replace(GPT3_175B, model=MODEL, global_batch_size=64, start_global_batch_size=64)
BASE = dataclasses.replace(
    SYSTEMS["dgxh100_n8"], nodes=1, micro_batch_size=1, tensor_parallel=1, pipeline_parallel=1, recompute="none"
)
KINDS = get_args(Recompute)
KEPT_LOSS_BYTES = 8
"""Bytes of a micro-batch on ranks that have its loss: the number, and its copy when all are put together."""


def config(num_layers: int = MODEL.num_layers, **topology: Any) -> RunConfig:
    benchmark = dataclasses.replace(BENCHMARK, model=dataclasses.replace(MODEL, num_layers=num_layers))
    made = RunConfig(benchmark=benchmark, system=dataclasses.replace(BASE, **topology))
    made.require_fit()
    return made


def run_dry(run: RunConfig) -> list[RankReport]:
    return dry_run(run.benchmark, run.system, run.precision).reports


@cache
def reports(**topology: Any) -> list[RankReport]:
    return run_dry(config(**topology))


TOPOLOGIES: dict[str, dict[str, Any]] = {
    "sharded": {},
    "tensor parallel, replicas": {"tensor_parallel": 2, "replicas": 2, "recompute": "selective"},
    "pipeline": {"pipeline_parallel": 2, "tensor_parallel": 2},
    "interleaved": {"pipeline_parallel": 4, "pipeline_chunks": 2, "num_layers": 8},
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "sharded" else pytest.mark.slow) for name in TOPOLOGIES]
)
def test_flops_and_parameters_are_the_formulas_and_the_host_waits_once(name: str) -> None:
    """That nothing is on the wrong device, or only for CPUs, is seen by its not failing."""
    topology = TOPOLOGIES[name]
    found = reports(**topology)
    for report in found:
        assert report.flops_per_micro_batch == pytest.approx(report.formula_flops_per_micro_batch, rel=1e-12)
        assert report.optimizer_bytes == 2 * report.parameter_bytes
        assert report.activation_bytes > 0
        (wait,) = report.host_waits
        assert wait.where.startswith("benchmark/training/step.py:") and wait.where.endswith(f"in {train_step.__name__}")
        assert abs(report.peak_bytes_per_micro_batch) <= KEPT_LOSS_BYTES
        assert abs(report.after_step_bytes_per_micro_batch) <= KEPT_LOSS_BYTES
        assert abs(report.after_evaluation_bytes) <= KEPT_LOSS_BYTES
        assert {one.shape.kernel for one in report.per_micro_batch.attention} == {"cudnn_attention"}
    pipeline_ranks, layers = topology.get("pipeline_parallel", 1), topology.get("num_layers", MODEL.num_layers)
    assert [report.rank for report in found] == {1: [0], 2: [0, 4], 4: [0, 2, 6]}[pipeline_ranks]
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
    first, last = reports(**TOPOLOGIES["pipeline"])
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
    by_kind = {kind: reports(**({} if kind == "none" else {"recompute": kind}))[0] for kind in KINDS}
    memory = [by_kind[kind].activation_bytes for kind in KINDS]
    assert memory[0] > 1.2 * memory[1] > 1.2 * 1.2 * memory[2]
    assert by_kind["selective"].flops_per_micro_batch == by_kind["none"].flops_per_micro_batch
    blocks = 4 * (16 * 256**2 + 4 * 128 * 256) * 128  # forward, but for the block's last product
    assert by_kind["full"].flops_per_micro_batch - by_kind["none"].flops_per_micro_batch == blocks


LLAMA = Llama31Config(4, 256, 8, 128, 1000, 1024, num_key_value_heads=2, ffn_hidden_size=448)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "recompute"),
    [(MODEL, "none"), (MODEL, "full"), (LLAMA, "selective")],
    ids=["gpt3, none", "gpt3, full", "llama31, selective"],
)
def test_fp8_takes_memory_for_weight_gradients_alone_and_gathers_half(
    model: DecoderSizes, recompute: Recompute
) -> None:
    """But for weight gradients of two micro-batches that are added at once. The host waits as in BF16. The ranks agree
    on all weights' scales in one small message a step, and on that of a gathered tensor in one before its gather."""
    run = config(tensor_parallel=2, recompute=recompute, fp8_weight_gradients=True)
    benchmark = dataclasses.replace(run.benchmark, model=model)
    fp8, bf16 = (
        in_processes(1, examine, benchmark, run.system, precision, "every rank", 0)[0] for precision in ("fp8", "bf16")
    )
    weights = [inputs * outputs for inputs, outputs in (product.on_rank(2) for product in model.products.values())]
    terms = 2 * 4 * sum(weights)  # of the first of two, in all four layers
    assert fp8.activation_bytes < bf16.activation_bytes + 1.06 * terms
    assert fp8.activation_bytes > bf16.activation_bytes + 0.9 * terms or recompute == "none"
    assert fp8.host_waits == bf16.host_waits
    assert fp8.flops_per_micro_batch == bf16.flops_per_micro_batch
    in_blocks = 4 * model.layer_matrix_weights // 2  # gathered by each of two tensor-parallel ranks
    ours, theirs = traffic(fp8), traffic(bf16)
    assert theirs["all-gather", "shard"][1] - ours["all-gather", "shard"][1] == in_blocks
    assert ours.pop(("all-reduce", "shard")) == (1, 4 * 4 * 4)  # four layers' four scales
    assert ("all-reduce", "shard") not in theirs
    gathers, gathers_in_bf16 = (counts["all-gather", "tensor"] for counts in (ours, theirs))
    assert gathers[0] == gathers_in_bf16[0] and 0.5 < gathers[1] / gathers_in_bf16[1] < 0.62
    messages, messages_in_bf16 = (counts["all-reduce", "tensor"] for counts in (ours, theirs))
    scales = (messages[0] - messages_in_bf16[0]) / run.system.num_microbatches(benchmark.global_batch_size)
    assert scales == 4 * 4 + (4 * 2 if recompute == "full" else 0)  # of both gathers of a block's passes
    of_gradients = [count for count in fp8.per_micro_batch.matmuls if count.shape.dtype == "float8_e5m2"]
    assert sum(count.calls * count.shape.flops for count in of_gradients) == 2 * 2 * 128 * 4 * sum(weights)
    assert {count.shape.out_dtype for count in of_gradients} == {"bfloat16"}


@pytest.mark.slow
def test_gradients_summed_after_each_micro_batch_are_not_kept() -> None:
    """Of a Llama in FP8, whose weight gradients travel in BF16, and vectors once a step. The first group of a step's
    last pass travels alone; those of earlier passes travel beside the next one."""
    run = config(shard_gradients=True)
    benchmark = dataclasses.replace(run.benchmark, model=LLAMA)
    kept_system = dataclasses.replace(run.system, shard_gradients=False)
    ours, kept = (
        in_processes(1, examine, benchmark, system, "fp8", "every rank", 0)[0] for system in (run.system, kept_system)
    )
    matrices, tables = 4 * LLAMA.layer_matrix_weights, 2 * 1024 * 256
    vectors = num_parameters(LLAMA) - matrices - tables
    passes = run.system.num_microbatches(benchmark.global_batch_size)
    assert traffic(ours)["reduce-scatter", "shard"][1] == passes * (2 * matrices + 4 * tables) + 4 * vectors
    assert traffic(kept)["reduce-scatter", "shard"][1] == 4 * (matrices + tables + vectors)
    assert ours.gradient_bytes * 8 == kept.gradient_bytes
    assert ours.peak_bytes < kept.peak_bytes - 4 * matrices
    sums = [message for message in ours.per_micro_batch.messages if message.kind == "reduce-scatter"]
    assert sum(message.bytes * message.calls for message in sums) == 2 * matrices + 4 * tables
    assert not any(message.alone for message in sums)


def test_a_question_of_another_pytorch_is_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(*_: object) -> None:
        torch.cuda.memory_stats()

    monkeypatch.setattr("benchmark.planning.dry_run.examine_rank.train_step", step)
    with pytest.raises(InputError, match=r"test_dry_run.py:\d+ in step: PyTorch \S+ asks .* torch.cuda.memory_stats,"):
        run_dry(config())


@pytest.mark.slow
def test_memory_that_does_not_suffice_is_refused_with_the_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--system dgxh100_n8 --num-layers 2 --hidden-size 49152 --num-attention-heads 384 --nodes 1 --dry-run"
    layout = "--micro-batch-size 1 --pipeline-parallel 1 --tensor-parallel 1"
    complaint = r"rank 0 \(every rank\) needs .* H100 SXM has 80 GB, .* Raise --tensor-parallel"
    with pytest.raises(CheckFailed, match=complaint):
        main(["train", "gpt3_175b", *words.split(), *layout.split()])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["the", "same", "for", "any", "number", "of", "micro-batches"] in lines
    kernels = {line[0]: int(line[1]) for line in lines if line and line[0] in ("matmul", "attention")}
    assert kernels == {"matmul": 2 * 12 + 2 + 2, "attention": 2 * 2}  # two logits tiles
    assert [line[:2] for line in lines if line[:1] == ["all-gather"]] == [["all-gather", "shard"]]
    assert ["the", "host", "waits", "once", "a", "step:", ".tolist()", "at"] in [line[:8] for line in lines]


@pytest.mark.slow
def test_work_of_a_micro_batch_by_hand() -> None:
    """A layer between the ends: four linear layers each, a product forward and two backward. Two of a layer's
    gathers are made again, for that is selective recomputation."""
    between = config(3, nodes=3, devices_per_node=2, tensor_parallel=2, pipeline_parallel=3, recompute="selective")
    (report,) = in_processes(1, examine, between.benchmark, between.system, "bf16", "some rank", 2)
    found = report.per_micro_batch
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
    shapes = [(one.shape, one.calls) for one in found.matmuls]
    assert {(s.m, s.n, s.k, s.out_dtype): calls for s, calls in shapes} == expected
    assert sum(one.calls for one in found.attention) == 2
    tensor = {(one.kind, one.bytes): one.calls for one in found.messages if one.axis == "tensor"}
    assert tensor == {("all-gather", tokens * hidden * 2): 6, ("reduce-scatter", tokens * hidden * 2): 4}
    exposed = sum(one.alone for one in found.messages if one.axis == "tensor")
    assert exposed < 6  # the others are begun before a product and waited for after it
    sent = {one.kind: (one.calls, one.bytes) for one in found.messages if one.axis == "pipeline"}
    assert sent == dict.fromkeys(("send", "receive"), (2, tokens // 2 * hidden * 2))


def test_kinds_of_ranks_and_how_much_is_run() -> None:
    pipeline = dataclasses.replace(SYSTEMS["dgxh100_n64"], pipeline_chunks=1)
    assert kinds_of_ranks(pipeline, 8) == {
        "first of the pipeline": 0,
        "between, 1 layers": 64,
        "last of the pipeline": 448,
    }
    micro_batches = pipeline.num_microbatches(2048)
    assert [counted_micro_batches(pipeline, micro_batches, rank) for rank in (0, 1, 7)] == [(17, 18), (15, 16), (3, 4)]
    interleaved = config(pipeline_parallel=2, pipeline_chunks=2)
    for rank in (0, 1):
        assert counted_micro_batches(interleaved.system, interleaved.num_microbatches, rank) == (4, 6)
    assert kinds_of_ranks(config(tensor_parallel=2, replicas=2).system, 4) == {"every rank": 0}
