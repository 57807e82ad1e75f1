"""What a run's configuration works out, and which values it refuses."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from benchmark.config.benchmarks import BENCHMARKS, GPT3_175B, LLAMA31_8B, REHEARSAL
from benchmark.config.field_checks import HEAD_SIZES, divisors
from benchmark.config.number_formats import NUMBER_FORMATS, Precision
from benchmark.config.run_config import RunConfig
from benchmark.config.run_sections import DataOptions, DebugSwitches
from benchmark.config.systems import DEFAULT_SYSTEM, LAYOUTS, SYSTEMS, system_called
from data_prep.sample_order.training_orders import TRAINING_ORDERS
from foundation.errors import InputError
from tests.support import changed

DGX = dataclasses.replace(SYSTEMS["dgxh100_n64"], micro_batch_size=1)


def config(batch: dict[str, Any], topology: dict[str, Any]) -> RunConfig:
    return RunConfig(dataclasses.replace(GPT3_175B, **batch), dataclasses.replace(DGX, **topology))


def test_counts_of_a_batch_size_that_does_not_divide() -> None:
    benchmark = dataclasses.replace(GPT3_175B, global_batch_size=2304)
    assert benchmark.start_samples == 6_144_000
    assert benchmark.start_iteration == 2666  # 6,144,000 / 2304 = 2666.7
    assert benchmark.last_iteration == 8680  # 20,000,000 / 2304 = 8680.6
    assert benchmark.eval_interval == 11  # 24,576 / 2304 = 10.7
    run = config({"global_batch_size": 2048}, {"micro_batch_size": 2})
    assert (run.num_microbatches, run.benchmark.tokens_per_step) == (64, 2048 * 2048)


def test_a_folder_stands_for_the_benchmarks_datasets() -> None:
    run = RunConfig(GPT3_175B, DGX, data=DataOptions(valid_data_path=("V",), data_folder=Path("/d")))
    expected = ("0.5", "/d/c4_en_6_c4_spm_text_document", "0.5", "/d/c4_en_7_c4_spm_text_document")
    assert (run.data.train_data_path, run.data.valid_data_path) == (expected, ("V",))
    assert dataclasses.replace(run, result_number=1).data == run.data
    alone = RunConfig(LLAMA31_8B, DGX, data=DataOptions(data_folder=Path("/d"))).data.train_data_path
    assert alone == ("/d/c4-train.en_6_text_document",)  # no blend, which has a margin


@pytest.mark.parametrize("name", TRAINING_ORDERS)
def test_samples_shows_the_order_that_the_run_reads(name: str) -> None:
    benchmark, order = BENCHMARKS[name], TRAINING_ORDERS[name]
    assert (benchmark.model.vocab_size, benchmark.model.seq_length) == (order.vocab_size, order.sequence_length)
    assert benchmark.global_batch_size == order.global_batch_size
    assert benchmark.start_samples == order.start_samples
    assert (benchmark.labels_last_token, benchmark.shuffle_documents) == (order.plus_one, order.shuffle_documents)
    for size in (16, 96, 128):
        changed = dataclasses.replace(benchmark, global_batch_size=size)
        assert changed.ordered_samples == order.requested_samples(size)


def test_validation_windows_are_ordered_for_all_evaluations() -> None:
    """1,200,000 steps with an evaluation every 768 or 128, and one more; 64 batches of 16 or 11 of 96."""
    assert LLAMA31_8B.ordered_evaluation_samples == 1563 * 64 * 16
    assert dataclasses.replace(LLAMA31_8B, global_batch_size=96).ordered_evaluation_samples == 9376 * 11 * 96
    with pytest.raises(InputError, match="gpt3_175b evaluates its whole validation set, in whatever order; leave out"):
        dataclasses.replace(GPT3_175B, validation_order="seed")


def test_listed_benchmarks_fit_their_systems() -> None:
    pairs = [*DEFAULT_SYSTEM.items(), *((name, system) for name, some in LAYOUTS.items() for system in some)]
    for name, system in pairs:
        RunConfig(benchmark=BENCHMARKS[name], system=system_called(system, name)).require_fit()


@pytest.mark.parametrize(
    ("owner", "change", "complaint"),
    [
        (GPT3_175B.optimizer, {"lr_warmup_samples": -1}, "expected 0 <= warm-up < decay"),
        (GPT3_175B.optimizer, {"lr_decay_samples": 265 * 1536}, "expected 0 <= warm-up < decay"),
        (
            GPT3_175B.optimizer,
            {"min_lr": 3e-5},
            "min_lr 3e-05 and lr 2e-05: expected 0 <= min_lr <= lr; change --lr or -",
        ),
        (GPT3_175B.optimizer, {"min_lr": -1e-6}, "expected 0 <= min_lr <= lr"),
        (GPT3_175B, {"global_batch_size": 0}, "global_batch_size 0: expected at least 1; change --global-batch-size"),
        (GPT3_175B, {"eval_interval_samples": -1}, "eval_interval_samples -1: expected at least 1"),
        (GPT3_175B, {"train_samples": 6_145_535}, "train_samples 6145535 end at step 4000, not after .* 4000; raise"),
        (DataOptions(), {"seed": -1}, "seed -1: expected 0 to 4294967295; change --seed"),
        (DataOptions(), {"seed": 2**32}, "seed 4294967296: expected 0 to 4294967295"),
        (DebugSwitches(), {"profile_ranks": (0, -1)}, "--profile-ranks"),
        *((DebugSwitches(), {"profile": text}, "FIRST:LAST") for text in ("4012:4010", "0:3", "5", "a:b", "", "1:2:3")),
    ],
)
def test_values_that_are_refused(owner: Any, change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        dataclasses.replace(owner, **change)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"prometheus_textfile": Path("gpt3.txt")}, r"gpt3.txt: the collector reads files \*.prom only"),
        ({"after_checkpoint": "sbatch 'eval.sh"}, "No closing quotation; quote its words as a shell would"),
        ({"after_checkpoint": "  "}, "after_checkpoint: no program"),
        (
            {"system": SYSTEMS["cpu_p1"], "debug": DebugSwitches(nvtx=True, memory_snapshot=True)},
            "--nvtx, --memory-snapshot: system cpu_p1 has no GPU",
        ),
        ({"system": SYSTEMS["cpu_p1"], "debug": DebugSwitches(nccl_debug="INFO")}, "--nccl-debug"),
    ],
)
def test_runs_that_are_refused(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        changed(RunConfig(benchmark=GPT3_175B, system=DGX), **change)


def test_steps_to_profile() -> None:
    assert DebugSwitches(profile="10:12").profiled_steps == (10, 12)
    assert DebugSwitches().profiled_steps is None
    wanted = DebugSwitches(profile="7:7", nvtx=True, memory_snapshot=True)
    assert RunConfig(GPT3_175B, DGX, debug=wanted).debug.for_gpus == ["--nvtx", "--memory-snapshot"]


@pytest.mark.parametrize(
    ("batch", "topology", "complaint"),
    [
        (
            {},
            {"devices_per_node": 5, "tensor_parallel": 5},
            "tensor_parallel 5 does not divide num_attention_heads 96; possible: 1, 2, 4, 8, 16, 32; change",
        ),
        ({}, {"pipeline_chunks": 13}, "parallel 8 x pipeline_chunks 13 are more stages than the model's 96 layers"),
        ({"global_batch_size": 1537}, {}, "use --global-batch-size 1536 or 1552, or another"),
        ({"global_batch_size": 8}, {}, "use --global-batch-size 16 or 32"),
        (
            {"global_batch_size": 64},
            {},
            "4 micro-batches per step and device do not fill a pipeline of 8, which needs at least 8: "
            "use --global-batch-size 128",
        ),
    ],
)
def test_sizes_that_cannot_be_dealt_out(batch: dict[str, Any], topology: dict[str, Any], complaint: str) -> None:
    made = config(batch, topology)  # schedule prints such a run all the same
    with pytest.raises(InputError, match=complaint):
        made.require_fit()
    config({"global_batch_size": 128}, {}).require_fit()  # just fills the pipeline
    config({"global_batch_size": 192}, {"pipeline_chunks": 2}).require_fit()


def with_heads(system: str, hidden: int, heads: int, precision: Precision, tensor_parallel: int = 1) -> RunConfig:
    model = dataclasses.replace(REHEARSAL.model, hidden_size=hidden, num_attention_heads=heads)
    sizes: dict[str, Any] = {"nodes": 1, "devices_per_node": 8, "pipeline_parallel": 1, "micro_batch_size": 1}
    one = dataclasses.replace(SYSTEMS[system], **sizes, tensor_parallel=tensor_parallel)
    return RunConfig(dataclasses.replace(REHEARSAL, model=model), one, precision=precision)


@pytest.mark.parametrize(
    ("sizes", "complaint"),
    [
        ((240, 24, "bf16"), "hidden_size 240 are heads of 10; .* bf16 .* of 8 up to 256; possible: 1, 2, 3, 5,"),
        ((240, 24, "bf16", 2), "heads of 10; .* possible: 2, 6, 10, 30; change --num-attention-heads"),
        ((240, 80, "fp32"), "heads of 3; attention in fp32 on a GPU takes multiples of 4 up to 65536; possible"),
        ((1022, 2, "bf16"), "heads of 511; .* up to 256; change --hidden-size$"),
    ],
)
def test_heads_that_no_kernel_takes_are_refused_on_gpus(sizes: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        with_heads("dgxh100_n64", *sizes).require_fit()
    with_heads("cpu_p2", *sizes).require_fit()


def test_heads_that_are_said_to_be_possible_are() -> None:
    precisions: tuple[Precision, ...] = ("bf16", "fp32")
    for precision in precisions:
        multiple, most = HEAD_SIZES[NUMBER_FORMATS[precision].value_dtype]
        for hidden in (64, 240, 1000):
            for heads in divisors(hidden):
                try:
                    with_heads("dgxh100_n64", hidden, heads, precision).require_fit()
                except InputError as error:
                    assert hidden // heads % multiple or hidden // heads > most
                    for other in str(error).partition("possible: ")[2].partition(";")[0].split(", "):
                        with_heads("dgxh100_n64", hidden, int(other), precision).require_fit()
                else:
                    assert hidden // heads % multiple == 0 and hidden // heads <= most


def test_divisors() -> None:
    assert [divisors(number) for number in (1, 12, 36)] == [[1], [1, 2, 3, 4, 6, 12], [1, 2, 3, 4, 6, 9, 12, 18, 36]]
    assert len(divisors(8 * 999_999_999_999)) == 1024  # at once: of nodes that somebody mistyped


def test_banner_says_what_is_trained_on_what_and_from_where() -> None:
    data = DataOptions(("0.5", "a", "0.5", "b"), ("v",), Path("ckpt"))
    run = RunConfig(GPT3_175B, SYSTEMS["dgxh100_n64"], run_dir=Path("runs/1"), data=data)
    assert list(run.banner(17)) == [
        "gpt3_175b in BF16, to log perplexity 2.69, global batch size 1,536",
        "dgxh100_n64: 64 x 8 H100 SXM, tensor parallel 4, pipeline parallel 8 x 6, data parallel 16, "
        "micro-batch size 2",
        "learning rate 2e-05 to 2e-06, warm-up of 407,040 samples",
        "training data 0.5 a 0.5 b",
        "validation data v",
        "checkpoint ckpt",
        "run folder runs/1, seed 17",
    ]
