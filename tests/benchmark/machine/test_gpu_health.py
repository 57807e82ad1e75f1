"""What turns bad on a GPU, and the thread that takes readings."""

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from benchmark.machine.gpu_health import DeviceHealth, turned_bad
from benchmark.machine.gpus import TROUBLE, DeviceReading

GOOD = DeviceReading(99, 1980, 1980, 650, 700, 61, 0, 3, 0, 0, 0, 12)


def changed(**fields: float) -> DeviceReading:
    return DeviceReading(**{**vars(GOOD), **fields})


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (changed(), {}),
        (changed(reasons=4), {}),
        (changed(corrected=30), {}),
        (
            changed(reasons=0x40, clock_mhz=1095),
            {"thermal slowdown": "thermal slowdown: clocks 1,095 of 1,980 MHz, thermal slowdown, 61 °C, 650 of 700 W"},
        ),
        (changed(uncorrected=2), {"uncorrected": "2 uncorrected memory errors"}),
        (changed(corrected=5003), {"corrected": "5,000 corrected memory errors in a short time"}),
        (changed(link_errors=20), {"links": "8 errors on its NVLinks"}),
        (
            changed(remap_failed=1),
            {"remap failed": "rows of its memory could not be replaced; have the GPU exchanged"},
        ),
    ],
)
def test_what_turned_bad(now: DeviceReading, told: dict[str, str]) -> None:
    assert turned_bad(GOOD, now) == told
    assert turned_bad(now, now) == {}


def test_what_was_bad_before_the_run_is_told_and_old_link_errors_are_not() -> None:
    first = changed(uncorrected=1, remap_pending=1, link_errors=99, corrected=9999)
    assert set(turned_bad(None, first)) == {"uncorrected", "remap pending"}


def test_nothing_turns_bad_while_the_figures_of_trouble_stay() -> None:
    stays = changed(clock_mhz=900, power_w=100, temperature_c=95)
    assert stays.row()[TROUBLE] == GOOD.row()[TROUBLE]
    for worse in (changed(reasons=8), changed(corrected=9000), changed(remap_pending=1), changed(link_errors=13)):
        assert worse.row()[TROUBLE] != GOOD.row()[TROUBLE]


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_thread_keeps_the_newest_readings_until_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    readings: Iterator[DeviceReading] = iter([GOOD, GOOD, changed(temperature_c=80)])
    health = DeviceHealth(lambda: lambda: next(readings), interval_s=0.01, keep=2)
    eventually(lambda: (health.newest() or GOOD).temperature_c == 80)
    assert [one.temperature_c for _, one in health.readings] == [61, 80]
    monkeypatch.setattr("benchmark.machine.gpu_health.TOO_OLD_S", 0.0)
    assert health.newest() is None
    health.close()


def test_a_device_that_hangs_holds_nobody_up() -> None:
    hangs = threading.Event()
    health = DeviceHealth(lambda: SimpleNamespace(read=lambda: hangs.wait()).read)
    assert health.newest() is None
    hangs.set()
