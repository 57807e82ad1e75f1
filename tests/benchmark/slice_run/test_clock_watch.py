import time
from types import SimpleNamespace
from typing import Any

from benchmark.machine.gpus import DeviceReading
from benchmark.slice_run.clock_watch import ClockWatch, clocks_within
from stage.errors import InputError

BUSY, IDLE = DeviceReading(98, 1755, 1980, 689.5, 700, 61), DeviceReading(0, 345, 1980, 71.2, 700, 30)


def test_gpus_at_work_are_told_over_the_window() -> None:
    slower = DeviceReading(98, 1605, 1980, 600.0, 700, 60)
    silent = DeviceReading(98)
    readings = [(at_s, one) for at_s in (9.0, 12.0) for one in (BUSY, IDLE, silent)] + [(11.0, slower)]
    clocks = clocks_within(readings, (10.0, 13.0))
    assert clocks is not None
    assert (clocks.lowest_clock_mhz, clocks.most_clock_mhz) == (1605.0, 1980.0)
    assert (clocks.highest_power_w, clocks.most_power_w, clocks.highest_temperature_c) == (689.5, 700.0, 61.0)
    assert clocks_within(readings, (20.0, 30.0)) is None


def test_the_watch_reads_until_it_is_closed() -> None:
    gpus: Any = [SimpleNamespace(read=lambda: BUSY), SimpleNamespace(read=lambda: IDLE)]
    watch = ClockWatch(lambda: gpus)
    deadline = time.monotonic() + 60
    while not watch._readings and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [one for _, one in watch.close()][:2] == [BUSY, IDLE]


def test_where_nobody_answers_there_are_no_readings() -> None:
    def none_here() -> Any:
        raise InputError("NVML finds no GPU")

    assert ClockWatch(none_here).close() == []
