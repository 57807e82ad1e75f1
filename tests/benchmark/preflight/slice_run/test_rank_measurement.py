"""One process's part of a slice, on CPUs."""

from pathlib import Path

import pytest

from benchmark.preflight.slice_run.rank_measurement import RankMeasurement, measure, read_measurements
from benchmark.preflight.slice_run.slice_config import SliceOptions, slice_config
from benchmark.training.engine.distributed import joined_world, read_environment
from tests.benchmark.tiny import in_processes


def measured(options: SliceOptions, folder: Path) -> RankMeasurement:
    config = slice_config(options, 2, "")
    with joined_world(config.system, read_environment()) as world:
        return measure(config, world, options.steps, folder, folder / "trace.json")


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
    assert read_measurements(tmp_path, 2) == ranks
    assert first.losses == second.losses
    assert first.losses[-1] < first.losses[0] < 7.1  # the logarithm of 1,000 is 6.9; these weights are small
    assert (len(first.losses), len(first.steps_s)) == (4, 2)
    assert (first.skipped, first.readings, first.reserved_bytes) == (0, (), None)
    assert first.times is not None
    assert {"matmul", "attention", "normalization", "communication"} <= set(first.times.by_kind_s)
    assert first.rates is not None
    assert second.rates is None
    assert first.collectives == second.collectives
    assert {(one.kind, one.ranks, one.seconds > 0) for one in first.collectives} == {
        (kind, 2, True) for kind in ("all-gather", "reduce-scatter", "all-reduce", "send")
    }
    assert (tmp_path / "trace.json").is_file()
