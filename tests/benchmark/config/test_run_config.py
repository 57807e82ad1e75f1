"""What a run's configuration works out, and which values it refuses."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from benchmark.config.benchmarks import BENCHMARKS, GPT3_175B
from benchmark.config.run_config import RunConfig
from benchmark.config.run_sections import DataOptions
from benchmark.config.systems import DEFAULT_SYSTEM, LAYOUTS, SYSTEMS, system_called
from stage.errors import InputError

DGX = dataclasses.replace(SYSTEMS["dgxh100_n64"], micro_batch_size=1)


def config(batch: dict[str, Any], topology: dict[str, Any]) -> RunConfig:
    return RunConfig(dataclasses.replace(GPT3_175B, **batch), dataclasses.replace(DGX, **topology))


def test_counts_of_a_batch_size_that_does_not_divide() -> None:
    benchmark = dataclasses.replace(GPT3_175B, global_batch_size=2304)
    assert benchmark.start_samples == 6_144_000
    assert benchmark.start_iteration == 2666  # 6,144,000 / 2304 = 2666.7
    assert benchmark.last_iteration == 8680  # 20,000,000 / 2304 = 8680.6
    assert benchmark.eval_interval == 11  # 24,576 / 2304 = 10.7


def test_a_folder_stands_for_the_benchmarks_datasets() -> None:
    run = RunConfig(GPT3_175B, DGX, data=DataOptions(valid_data_path=("V",), data_folder=Path("/d")))
    expected = ("0.5", "/d/c4_en_6_c4_spm_text_document", "0.5", "/d/c4_en_7_c4_spm_text_document")
    assert (run.data.train_data_path, run.data.valid_data_path) == (expected, ("V",))
    assert dataclasses.replace(run, result_number=1).data == run.data


def test_micro_batches_and_tokens_of_a_step() -> None:
    run = config({"global_batch_size": 2048}, {"micro_batch_size": 2})
    assert run.num_microbatches == 64
    assert run.benchmark.tokens_per_step == 2048 * 2048


def test_listed_benchmarks_fit_their_systems() -> None:
    pairs = [*DEFAULT_SYSTEM.items(), *((name, system) for name, some in LAYOUTS.items() for system in some)]
    for name, system in pairs:
        RunConfig(benchmark=BENCHMARKS[name], system=system_called(system, name)).require_fit()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"lr_warmup_samples": -1}, "expected 0 <= warm-up < decay"),
        ({"lr_decay_samples": 265 * 1536}, "expected 0 <= warm-up < decay"),
        ({"min_lr": 3e-5}, "min_lr 3e-05 and lr 2e-05: expected 0 <= min_lr <= lr; change --min-lr"),
        ({"min_lr": -1e-6}, "expected 0 <= min_lr <= lr"),
    ],
)
def test_learning_rates_that_are_refused(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        dataclasses.replace(GPT3_175B.optimizer, **change)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"global_batch_size": 0}, "global_batch_size 0: expected at least 1; change --global-batch-size"),
        ({"eval_interval_samples": -1}, "eval_interval_samples -1: expected at least 1"),
        ({"train_samples": 6_144_000}, "train_samples 6144000 end at step 4000, not after .* 4000; raise"),
        ({"train_samples": 6_145_535}, "raise --train-samples"),
    ],
)
def test_benchmarks_that_are_refused(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        dataclasses.replace(GPT3_175B, **change)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seeds_outside_the_range_are_refused(seed: int) -> None:
    with pytest.raises(InputError, match=f"seed {seed}: expected 0 to 4294967295; change --seed"):
        DataOptions(seed=seed)


@pytest.mark.parametrize(
    ("batch", "topology", "complaint"),
    [
        (
            {},
            {"devices_per_node": 5, "tensor_parallel": 5},
            "tensor_parallel 5 does not divide num_attention_heads 96; possible: 1, 2, 4, 8, 16, 32; change",
        ),
        (
            {},
            {"pipeline_chunks": 13},
            "pipeline_parallel 8 x pipeline_chunks 13 are more stages than the model's 96 layers",
        ),
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


def test_sizes_that_just_fill_a_pipeline() -> None:
    config({"global_batch_size": 128}, {}).require_fit()
    config({"global_batch_size": 192}, {}).require_fit()
    config({"global_batch_size": 192}, {"pipeline_chunks": 2}).require_fit()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"prometheus_textfile": Path("gpt3.txt")}, r"gpt3.txt: the collector reads files \*.prom only"),
        ({"after_checkpoint": "sbatch 'eval.sh"}, "No closing quotation; quote its words as a shell would"),
        ({"after_checkpoint": "  "}, "after_checkpoint: no program"),
    ],
)
def test_sinks_and_commands_that_are_refused(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        RunConfig(benchmark=GPT3_175B, system=DGX).changed(**change)


def test_banner_says_what_is_trained_on_what_and_from_where() -> None:
    data = DataOptions(("0.5", "a", "0.5", "b"), ("v",), Path("ckpt"))
    run = RunConfig(GPT3_175B, SYSTEMS["dgxh100_n64"], run_dir=Path("runs/1"), data=data)
    assert list(run.banner(17)) == [
        "gpt3_175b in BF16, to log perplexity 2.69, global batch size 1,536",
        "dgxh100_n64: 64 x 8 H100 SXM, tensor parallel 4, pipeline parallel 8 x 6, data parallel 16, "
        "micro-batch size 2",
        "data 0.5 a 0.5 b, evaluated on v, seed 17",
        "checkpoint ckpt, run folder runs/1",
    ]
