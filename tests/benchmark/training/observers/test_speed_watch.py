"""What a run says of its speed: a rank that computes slower is named with its host; an undisturbed run names none."""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmark.config.run_config import RunConfig
from benchmark.run_record.endings import Ending
from benchmark.run_record.events.event import Event
from benchmark.run_record.events.event_log import EventLog
from benchmark.run_record.run_progress import starting_progress
from benchmark.training import train as training
from benchmark.training.engine.rank_environment import read_environment
from benchmark.training.engine.rank_speed import HostTimer
from benchmark.training.machine.gpus import DeviceReading
from benchmark.training.observer import FinishedStep
from benchmark.training.observers.slowness_rules import SAMPLES
from benchmark.training.observers.speed_watch import WARM_UP, SpeedWatch
from benchmark.training.step import StepFlags, StepResult
from model.passes.block_pass import BlockPass
from tests.benchmark.run_record.events.recorder import Recorder
from tests.benchmark.runs import events, figures, run, system_of
from tests.benchmark.tiny import CPU, TINY, Inputs, in_processes

NORMAL = DeviceReading(99, 1980, 1980, 650, 700, 61, 0, 0, 0, 0, 0, 0)
HOT = dataclasses.replace(NORMAL, clock_mhz=1095, reasons=0x40, temperature_c=91)


class Reports:
    """SpeedWatch of rank 0 among ``ranks`` GPUs, eight to a node, without a GPU: rows are given to it."""

    def __init__(self, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[Event] = []
        self._log = EventLog([Recorder(self.events.append)])
        system = dataclasses.replace(CPU, nodes=ranks // 8, devices_per_node=8)
        monkeypatch.setattr("benchmark.training.observers.speed_watch.RankTable", lambda *_: None)
        monkeypatch.setattr("benchmark.training.observers.speed_watch.OwnCompute", lambda *_, **__: None)
        monkeypatch.setattr("benchmark.training.observers.speed_watch.watch_device", lambda _: None)
        world: Any = SimpleNamespace(rank=0, size=ranks, device=torch.device("cuda"))
        hosts = [f"n{rank // 8 + 1}" for rank in range(ranks)]
        self._progress = starting_progress(TINY, 1)
        passes = SimpleNamespace(watch=lambda _: None)
        state: Any = SimpleNamespace(system=system, world=world, pipeline=passes, progress=self._progress)
        self.reports = SpeedWatch(2, state, hosts, self._log)
        self.rows: list[list[float]] | None = None
        table = SimpleNamespace(receive=lambda: self.rows, send=lambda row: None)
        setattr(self.reports, "_table", table)  # noqa: B010
        setattr(self.reports, "_timer", SimpleNamespace(start=lambda: None, stop=lambda: None))  # noqa: B010

    def steps(
        self, first: int, count: int, step_s: float, rows: list[list[float]] | None, *, disturbed: bool = False
    ) -> None:
        """Steps that take ``step_s``, at each of which ``rows`` arrive."""
        self.rows = rows
        for number in range(first, first + count):
            self._progress.steps = number - 1
            self.reports.before_step()
            self._progress.steps += 1
            result = StepResult(3.5, 0.25, 1e-3, False, StepFlags(writer_busy=disturbed))
            self.reports.step_done(FinishedStep(result, 0, time.perf_counter() - step_s))

    def messages(self) -> list[str]:
        self._log.close()
        return [str(event.value) for event in self.events if event.key == "message"]

    def of(self, key: str) -> list[Any]:
        return [event.metadata for event in self.events if event.key == key]


def rows_of(ranks: int, slow: dict[int, float] | None = None, hot: Sequence[int] = ()) -> list[list[float]]:
    return [
        [0.0023 * (1 + (slow or {}).get(rank, 0.0)), *(HOT if rank in hot else NORMAL).row()] for rank in range(ranks)
    ]


def test_a_slow_gpu_is_named_with_what_it_says_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = Reports(16, monkeypatch)
    reports.steps(1, 5, 2.0, rows_of(16))
    reports.steps(6, 2 * SAMPLES, 2.0, rows_of(16, {12: 0.31}, hot=[12]))
    health = "clocks 1,095 of 1,980 MHz, thermal slowdown, 91 °C, 650 of 700 W"
    slow = "rank 12 on n2 GPU 4 computes 31% slower: 3.01 ms a block, its peers 2.3 ms"
    assert reports.messages() == [
        f"rank 12 on n2 GPU 4: thermal slowdown: {health}",
        f"after step 14: {slow}; {health}",
    ]
    (noted,) = reports.of("slow_ranks")
    assert noted["block_us"] == [3013 if rank == 12 else 2300 for rank in range(16)]
    (slow_rank,) = noted["slow"]
    assert (slow_rank["rank"], slow_rank["host"], slow_rank["device"], slow_rank["health"]) == (12, "n2", 4, health)
    (device,) = reports.of("device_health")
    assert (device["rank"], device["host"], device["trouble"]) == (12, "n2", "thermal slowdown")


def test_trouble_is_told_once_and_a_rank_that_recovers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = Reports(8, monkeypatch)
    for number in range(3):
        reports.steps(1 + 4 * number, 2, 2.0, rows_of(8))
        reports.steps(3 + 4 * number, 2, 2.0, rows_of(8, hot=[3]))
    reports.steps(13, SAMPLES, 2.0, rows_of(8, {2: 0.5}))
    reports.steps(13 + SAMPLES, SAMPLES, 2.0, rows_of(8))
    hot, _, recovered = reports.messages()
    assert "thermal slowdown" in hot
    assert recovered.endswith("rank 2 on n1 GPU 2 computes as fast as the others again")
    assert reports.of("slow_ranks")[-1]["recovered"] == [2]


def test_a_drop_of_throughput_names_the_slow_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = Reports(8, monkeypatch)
    reports.steps(1, 40, 105.2, rows_of(8))
    reports.steps(41, 20, 111.0, rows_of(8, {5: 0.31}))
    lines = [line for line in reports.messages() if line.startswith("since")]
    assert len(lines) == 1
    assert lines[0].startswith("since step 41 steps take 111 s, not 105.2 s: 5.2% of the throughput is lost; ")
    (noted,) = reports.of("speed_change")
    assert (noted["kind_of_change"], noted["since"]) == ("drop", 41)


def test_a_drop_that_no_rank_explains_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = Reports(8, monkeypatch)
    reports.steps(1, 40, 10.0, rows_of(8))
    reports.steps(41, 20, 11.0, rows_of(8))
    reports.steps(61, 40, 10.0, rows_of(8))
    drop, recovery = reports.messages()
    assert drop.endswith(
        "no rank computes slower than the others, so look at the network, the data and all that the ranks share"
    )
    assert recovery == "since step 61 steps take 10 s again"


def test_steps_beside_a_checkpoint_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = Reports(8, monkeypatch)
    reports.steps(1, 40, 10.0, None)
    reports.steps(41, 40, 13.0, None, disturbed=True)
    reports.steps(81, 40, 10.0, None)
    assert reports.messages() == []


BLOCK_S, SLOWED_BY = 0.001, 0.3


def _train_with_a_slow_rank(config: RunConfig, slow_rank: int) -> Ending:
    """Train, by a clock that tells of nothing but blocks; on that rank each takes 30 % longer."""
    now_s, forward = 0.0, BlockPass._whole_forward
    block_s = BLOCK_S * (1 + SLOWED_BY) if read_environment().rank == slow_rank else BLOCK_S

    def timed(*arguments: Any, **named: Any) -> Any:
        nonlocal now_s
        now_s += block_s
        return (yield from forward(*arguments, **named))

    setattr(BlockPass, "_whole_forward", timed)  # noqa: B010
    setattr(HostTimer, "mark", lambda _: now_s)  # noqa: B010
    return training.train(config)


@pytest.mark.slow
def test_a_rank_that_is_30_percent_slower_is_named_and_no_number_changes(inputs: Inputs, tmp_path: Path) -> None:
    system = system_of(2, micro_batch_size=3)
    steps = SAMPLES + WARM_UP + 2
    benchmark = dataclasses.replace(TINY, train_samples=(4000 + steps) * 12, eval_interval_samples=12 * steps)
    config = inputs.config(tmp_path / "run", benchmark=benchmark, system=system, audit_interval=0, speed_interval=1)
    assert in_processes(2, _train_with_a_slow_rank, config, 1) == ["success"] * 2
    ((rank,),) = [[one["rank"] for one in event["slow"]] for event in events(config.run_dir, "slow_ranks")]
    assert rank == 1
    (line,) = [event["value"] for event in events(config.run_dir, "message") if event["value"].startswith("after step")]
    assert ": rank 1 on " in line and " 30% slower: 1.3 ms a block" in line
    unwatched = run(inputs, tmp_path / "not", system, benchmark=benchmark, speed_interval=0)
    assert unwatched == figures(config.run_dir)
