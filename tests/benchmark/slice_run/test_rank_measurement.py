import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from benchmark.slice_run.rank_measurement import RankMeasurement, is_out_of_memory, measure, read_measurement
from benchmark.slice_run.slice_config import SliceOptions, slice_config
from benchmark.training.engine.distributed import joined_world, read_environment
from tests.benchmark.slice_run.samples import measurement
from tests.benchmark.tiny import in_processes


def measured(options: SliceOptions, folder: Path) -> RankMeasurement:
    config = slice_config(options, 2, "")
    with joined_world(config.system, read_environment()) as world:
        return measure(config, world, options.steps, folder)


@pytest.mark.slow
@pytest.mark.parametrize(("tensor", "pipeline"), [(2, 1), (1, 2)])
def test_two_processes_measure_the_step_that_trains(tensor: int, pipeline: int, tmp_path: Path) -> None:
    options = SliceOptions(
        "rehearsal",
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        device="cpu",
        steps=2,
        micro_batches=2,
        seq_length=32,
        hidden_size=64,
    )
    ranks: list[RankMeasurement] = in_processes(2, measured, options, tmp_path)
    first, second = ranks
    assert (first.rank, second.rank) == (0, 1)
    assert first.losses == second.losses
    assert first.losses[-1] < first.losses[0] < 7.1  # the logarithm of 1,000 is 6.9; these weights are small
    assert len(first.losses) == 4
    assert len(first.steps_s) == 2
    assert (first.skipped, first.times, first.reserved_bytes) == (0, None, None)
    assert {"matmul", "attention", "normalization", "communication"} <= set(first.operators_s)
    assert first.rates is not None
    assert second.rates is None
    assert first.collectives == second.collectives != ()
    assert (tmp_path / "trace_1.json").is_file()


@pytest.mark.parametrize("on_gpu", [True, False])
def test_a_measurement_survives_its_file(on_gpu: bool, tmp_path: Path) -> None:
    path = tmp_path / "rank_0.json"
    written = measurement(0, (1.0, 2.0), on_gpu=on_gpu)
    path.write_text(json.dumps(asdict(written)))
    assert read_measurement(path) == written


def test_too_little_memory_is_told_from_other_failures() -> None:
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"))
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"))
    assert is_out_of_memory(RuntimeError("NCCL error: unhandled cuda error, Cuda failure 2 'out of memory'"))
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
