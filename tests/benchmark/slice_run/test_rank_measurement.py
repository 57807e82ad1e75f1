from pathlib import Path

import pytest
import torch

from benchmark.slice_run import rank_measurement
from benchmark.slice_run.rank_measurement import (
    RankMeasurement,
    is_out_of_memory,
    measure,
    profiled_step,
    read_measurement,
    write_measurement,
)
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
    written = measurement(0, (1.0, 2.0), on_gpu=on_gpu)
    write_measurement(written, tmp_path)
    (path,) = tmp_path.iterdir()
    assert (path.name, read_measurement(path)) == ("rank_0.json", written)


def measured_without_kernels(options: SliceOptions, folder: Path) -> RankMeasurement:
    def no_kernel(*_: object) -> None:
        raise RuntimeError("no kernel image is available\nstack in C++")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank_measurement, "device_rates", no_kernel)
        return measured(options, folder)


@pytest.mark.slow
def test_a_kernel_that_fails_when_it_is_timed_takes_no_steps_along(tmp_path: Path) -> None:
    options = SliceOptions("rehearsal", device="cpu", steps=1, micro_batches=1, seq_length=32, hidden_size=32)
    (found,) = in_processes(1, measured_without_kernels, options, tmp_path)
    assert found.rates is None
    assert len(found.steps_s) == 1
    assert found.problems == ("rates: RuntimeError: no kernel image is available",)
    assert read_measurement(tmp_path / "rank_0.json") == found


def test_a_profiler_that_fails_takes_no_steps_along(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Broken:
        def start(self) -> None:
            raise RuntimeError("CUPTI is not allowed\nto this user")

    monkeypatch.setattr(torch.profiler, "profile", lambda **_: Broken())
    steps: list[int] = []
    found = profiled_step(torch.device("cpu"), lambda: steps.append(1), tmp_path / "trace.json")
    assert found == (None, {}, ("profiler: RuntimeError: CUPTI is not allowed",))
    assert steps == [1]  # the others' step has this process in it


def test_too_little_memory_is_told_from_other_failures() -> None:
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"))
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"))
    assert is_out_of_memory(RuntimeError("NCCL error: unhandled cuda error, Cuda failure 2 'out of memory'"))
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
