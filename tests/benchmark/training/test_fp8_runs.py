"""Runs in FP8: they learn, go on after a kill to the bit, and skip a step in which a value is broken."""

import dataclasses
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.run_config import RunConfig
from benchmark.config.system_config import System
from benchmark.run_record.file_names import checkpoint_path
from benchmark.training.engine.adam import local
from benchmark.training.engine.distributed import joined_world
from benchmark.training.engine.micro_batches import TrainingBatches
from benchmark.training.engine.rank_environment import read_environment
from benchmark.training.inputs import open_data
from benchmark.training.step import train_step
from benchmark.training.train import train
from model.passes.linear import fp8_linear
from model.passes.linear.fp8_kernels import GRADIENTS, VALUES
from model.passes.linear.fp8_operand import Operand, cast
from model.passes.linear.raw_operand import RawOperand
from tests.benchmark.fp8 import FP8_GPT3, FP8_LLAMA
from tests.benchmark.runs import figures, loaded_state, run, system_of
from tests.benchmark.tiny import Inputs, in_processes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("benchmark_of_run", "system"),
    [
        (FP8_GPT3, system_of(1)),
        (
            FP8_LLAMA,
            system_of(4, tensor_parallel=2, micro_batch_size=3, fp8_weight_gradients=False, shard_gradients=True),
        ),
    ],
    ids=["fp8_gpt3 on one device", "fp8_llama on two shards of two, BF16 weight gradients summed by micro-batch"],
)
def test_a_run_continues_to_the_bit(
    benchmark_of_run: Benchmark, system: System, inputs: Inputs, tmp_path: Path
) -> None:
    """As after kill -9: log and earlier checkpoint are there, the summary is not. No scale is in a checkpoint."""
    options: dict[str, Any] = {"precision": "fp8", "save_interval": 2, "system": system}
    whole = run(inputs, tmp_path / "whole", benchmark=benchmark_of_run, **options)
    assert whole[0][-1] < whole[0][0] - 0.02
    again = tmp_path / "again"
    shutil.copytree(tmp_path / "whole", again)
    (again / "summary.json").unlink()
    shutil.rmtree(checkpoint_path(again, 6))
    config = inputs.config(again, benchmark_of_run, **options)
    assert set(in_processes(config.system.num_devices, train, config)) == {"success"}
    continued = figures(again)
    assert [part[-2:] for part in continued[:2]] == [part[-2:] for part in whole[:2]]
    assert continued[2][-1] == whole[2][-1]


def _break_a_cast(number: int, dtype: torch.dtype) -> None:
    """Give the cast of that number, of inputs or of gradients, a tensor with an infinity."""
    count = 0

    def broken(x: RawOperand, to: torch.dtype, **options: bool) -> Operand:
        nonlocal count
        count += to == dtype
        if count == number and to == dtype:
            x = RawOperand(x.tensor.clone())
            x.tensor[3, 5] = math.inf
        return cast(x, to, **options)

    fp8_linear.cast = broken  # type: ignore[attr-defined, assignment]


def _skipped(config: RunConfig, broken: str) -> list[bool]:
    """Whether a step is skipped, before and after something breaks."""
    with joined_world(config.system, read_environment()) as world:
        state = loaded_state(config, world)
        batches = TrainingBatches(
            open_data(config.data, config.benchmark, 17).training, config.benchmark, config.system, rank=world.data_rank
        )
        skipped = []
        for step in range(2):
            if step == 1 and broken == "weight":
                name = next(name for name in state.parameters if "4h_to_h.weight" in name or "down_proj" in name)
                local(state.parameters[name].detach())[-1, -1] = math.inf
            elif step == 1:
                _break_a_cast(6, VALUES if broken == "input" else GRADIENTS)
            skipped.append(train_step(state, batches.at(state.progress.consumed_samples)).skipped)
            state.progress.steps += 1
        return skipped


@pytest.mark.parametrize("benchmark_of_run", [FP8_GPT3, FP8_LLAMA], ids=lambda benchmark: benchmark.name)
@pytest.mark.parametrize("broken", ["input", "gradient", "weight"])
def test_a_step_with_an_infinity_is_skipped(
    benchmark_of_run: Benchmark, broken: str, inputs: Inputs, tmp_path: Path
) -> None:
    """A cast to E4M3 alone would make a large number of it."""
    config = inputs.config(tmp_path / "run", benchmark_of_run, precision="fp8")
    assert in_processes(1, _skipped, config, broken) == [[False, True]]


@pytest.mark.slow
def test_blocks_at_both_ends_can_stay_in_bf16(inputs: Inputs, tmp_path: Path) -> None:
    """All four blocks in BF16 are a run in BF16, to the bit; two of them are between."""
    losses = {}
    for bf16_layers, precision in (((0, 0), "bf16"), ((2, 2), "fp8"), ((1, 1), "fp8"), ((0, 0), "fp8")):
        benchmark_of_run = dataclasses.replace(FP8_GPT3, bf16_layers=bf16_layers)
        folder = tmp_path / f"{precision} {bf16_layers}"
        losses[bf16_layers, precision] = run(inputs, folder, benchmark=benchmark_of_run, precision=precision)
    bf16, as_bf16, between, fp8 = losses.values()
    assert as_bf16 == bf16
    assert between not in (bf16, fp8) and between[0] == pytest.approx(bf16[0], rel=1e-2)
