"""Readings of a GPU by a stand-in for NVML, what is told of them, and the thread that takes them."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from benchmark.speed_watch.device_health import FIGURES, TROUBLE, DeviceHealth, DeviceReading, NvmlDevice, turned_bad
from stage.errors import InputError

GOOD = DeviceReading(1980, 1980, 650, 700, 61, 0, 3, 0, 0, 0, 12)


class NvmlError(Exception):
    pass


class StandInNvml(ModuleType):
    """Two GPUs by their names; what is not set is not supported."""

    NVMLError = NvmlError

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.says: dict[tuple[object, ...], Any] = {
            ("nvmlDeviceGetClockInfo", 1): 1095,
            ("nvmlDeviceGetMaxClockInfo", 1): 1980,
            ("nvmlDeviceGetPowerUsage",): 412_300,
            ("nvmlDeviceGetEnforcedPowerLimit",): 700_000,
            ("nvmlDeviceGetTemperature", 0): 91,
            ("nvmlDeviceGetCurrentClocksThrottleReasons",): 0x44,
            ("nvmlDeviceGetTotalEccErrors", 0, 0): 7,
            ("nvmlDeviceGetTotalEccErrors", 1, 0): 0,
            ("nvmlDeviceGetRemappedRows",): (1, 2, True, False),
            ("nvmlDeviceGetNvLinkState", 0): 1,
            ("nvmlDeviceGetNvLinkErrorCounter", 0, 0): 5,
            ("nvmlDeviceGetNvLinkErrorCounter", 0, 1): 2,
        }
        self.handle: object = None

    def nvmlInit(self) -> None:  # noqa: N802
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        return f"handle of {uuid}"

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        return f"handle of number {index}"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not any(key[0] == name for key in self.says):
            raise AttributeError(name)

        def ask(handle: object, *arguments: int) -> Any:
            self.handle = handle
            if (name, *arguments) not in self.says:
                raise NvmlError("Not Supported")
            return self.says[(name, *arguments)]

        return ask


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> StandInNvml:
    stand_in = StandInNvml()
    monkeypatch.setitem(sys.modules, "pynvml", stand_in)
    return stand_in


def test_reading_of_a_device(nvml: StandInNvml) -> None:
    reading = NvmlDevice("abc", 3).read()
    assert nvml.handle == "handle of GPU-abc"
    assert reading == DeviceReading(1095, 1980, 412.3, 700, 91, 0x44, 7, 0, 1, 0, 7)
    assert reading.line() == "clocks 1,095 of 1,980 MHz, thermal slowdown, at its power limit, 91 °C, 412 of 700 W"
    assert len(reading.row()) == FIGURES
    assert DeviceReading.of_row(reading.row()) == reading


def test_what_a_device_does_not_say_is_unknown(nvml: StandInNvml) -> None:
    nvml.says = {("nvmlDeviceGetTemperature", 0): 40}
    reading = NvmlDevice(None, 3).read()
    assert nvml.handle == "handle of number 3"
    assert reading.line() == "40 °C"
    assert reading.row() == [-1, -1, -1, -1, 40, *[-1] * (FIGURES - 5)]
    assert DeviceReading.of_row(reading.row()).row() == reading.row()
    assert turned_bad(None, reading) == {}
    assert DeviceReading().line() == ""
    assert reading.is_known()
    assert not DeviceReading().is_known()


def test_without_the_package_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(InputError, match="pip install nvidia-ml-py"):
        NvmlDevice(None, 0)


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


def test_the_thread_keeps_the_newest_reading() -> None:
    readings: Iterator[DeviceReading] = iter([GOOD, changed(temperature_c=80)])
    health = DeviceHealth(lambda: lambda: next(readings), interval_s=0.01)
    eventually(lambda: (health.newest() or GOOD).temperature_c == 80)
    eventually(lambda: health.problem)
    assert health.problem == "StopIteration"
    health.close()


def test_a_device_that_hangs_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = threading.Event()
    health = DeviceHealth(lambda: SimpleNamespace(read=lambda: hangs.wait()).read)
    assert health.newest() is None
    hangs.set()
    monkeypatch.setattr("benchmark.speed_watch.device_health.TOO_OLD_S", 0.0)
    old = DeviceHealth(lambda: lambda: GOOD)
    eventually(lambda: old._newest)
    assert old.newest() is None
    old.close()
