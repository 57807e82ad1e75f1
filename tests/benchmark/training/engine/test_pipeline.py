"""Passes through a pipeline: how evaluation is cut into runs, and that it gives what the whole model gives."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmark.config.run_config import RunConfig
from benchmark.training.engine.distributed import joined_world, read_environment
from benchmark.training.engine.micro_batches import MicroBatch, read_micro_batch
from benchmark.training.engine.pipeline import Pipeline
from benchmark.training.engine.run_progress import starting_progress
from benchmark.training.engine.train_state import empty_state, load_initial
from benchmark.training.inputs import open_data
from checkpoint_convert.formats.megatron_checkpoint import MegatronCheckpoint
from tests.benchmark.runs import system_of
from tests.benchmark.tiny import TINY, Inputs, in_processes


@pytest.mark.parametrize(
    ("batches", "in_a_step", "stages", "runs", "length"),
    [
        (10, 4, 2, 3, 4),
        (8, 4, 2, 2, 4),
        (9, 4, 2, 3, 4),  # ceil(9 / 4) runs of 3, which is no multiple of the stages
        (3, 8, 4, 1, 4),  # fewer than a step has: one short run
        (1, 4, 4, 1, 4),
        (13, 6, 3, 3, 6),
        (100, 64, 8, 2, 56),  # not 64: the last run would be mostly fill
    ],
)
def test_evaluation_runs_are_few_and_equally_long(
    batches: int, in_a_step: int, stages: int, runs: int, length: int
) -> None:
    system = system_of(stages, pipeline_parallel=stages, micro_batch_size=1)
    pipeline = Pipeline.__new__(Pipeline)  # without a world: the runs follow from the configuration
    pipeline._config = RunConfig(benchmark=dataclasses.replace(TINY, global_batch_size=in_a_step), system=system)
    given = [MicroBatch(*(torch.full((1, 4), float(number + 1)) for _ in range(3))) for number in range(batches)]
    found = pipeline._evaluation_runs(given)
    assert [len(one) for one in found] == [length] * runs
    flat = [batch for one in found for batch in one]
    assert flat[:batches] == given
    assert all(batch.loss_mask.sum() == 0 for batch in flat[batches:])


def _passes(config: RunConfig) -> tuple[float, list[float], bool]:
    """Loss of a step, sum and number of an evaluation of seven micro-batches."""
    with joined_world(config.system, read_environment()) as world:
        state = empty_state(config, world, starting_progress(config.benchmark, 17))
        assert config.checkpoint is not None
        load_initial(state, MegatronCheckpoint(config.checkpoint))
        windows = open_data(config, 17).training
        batches = [read_micro_batch(windows, some, 100) for some in np.arange(48_000, 48_014).reshape(7, 2)]
        loss = state.forward_backward.train(batches[: config.num_microbatches])
        total = state.forward_backward.evaluate(batches)
        for part in (loss, total):
            torch.distributed.all_reduce(part)
        return loss.item(), total.tolist(), isinstance(state.forward_backward, Pipeline)


@pytest.mark.slow
@pytest.mark.parametrize("chunks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_pipeline_gives_what_the_whole_model_gives(chunks: int, inputs: Inputs, tmp_path: Path) -> None:
    ((loss, total, pipelined),) = in_processes(1, _passes, inputs.config(tmp_path))
    assert not pipelined
    system = system_of(2, pipeline_parallel=2, pipeline_chunks=chunks)
    for found in in_processes(2, _passes, inputs.config(tmp_path, system=system)):
        assert found[0] == pytest.approx(loss, rel=2e-6)
        assert found[1] == pytest.approx(total, rel=2e-6)
        assert found[1][1] == 14 * 15  # fill does not count
        assert found[2]
