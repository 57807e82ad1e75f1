"""Faults strike at their moment, once, and are noted."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import benchmark.training.loop as loop_module
from benchmark.drills import injector as injector_module
from benchmark.drills.acts import ACTS
from benchmark.drills.faults import Fault
from benchmark.drills.injector import STRUCK, Injector


@pytest.fixture
def struck(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What kills would have killed."""
    found: list[str] = []

    def note(strike: Any, arguments: Any) -> Any:
        found.append(strike.fault.at)
        return arguments

    monkeypatch.setitem(ACTS, "kill", note)
    monkeypatch.setitem(ACTS, "spike", note)
    return found


def _injector(tmp_path: Path, *faults: Fault) -> Injector:
    return Injector(faults, tmp_path, tmp_path / "run", rank=1, attempt=1)


def test_strikes_at_the_first_such_moment_after_its_step(tmp_path: Path, struck: list[str]) -> None:
    injector = _injector(tmp_path, Fault("kill", "evaluation", (5, 5), 1), Fault("kill", "evaluation", (5, 5), 0))
    injector.enter("evaluation", 4)
    injector.enter("passes", 7)
    assert struck == []
    injector.enter("evaluation", 8)
    injector.enter("evaluation", 12)
    assert struck == ["evaluation"]
    (line,) = map(json.loads, (tmp_path / STRUCK).read_text().splitlines())
    assert (line["act"], line["rank"], line["attempt"], line["steps"]) == ("kill", 1, 1, 8)
    assert abs(line["time_s"] - time.time()) < 60


def test_strikes_in_calls_and_repeats_what_repeats(
    tmp_path: Path, struck: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "train_step", lambda *arguments: arguments)
    injector = _injector(tmp_path, Fault("kill", "call:step", (2, 2), 1), Fault("spike", "call:step", (3, 3), 1))
    injector.stand_at_seams()
    called: Any = getattr(loop_module, "train_step")  # noqa: B009
    for steps in range(5):
        injector.enter("data", steps)
        assert called("state", "batches") == ("state", "batches")
    assert struck == ["call:step"] * 3
    assert len((tmp_path / STRUCK).read_text().splitlines()) == 2


def test_strikes_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    struck_s: list[float] = []

    def note(_: Any, arguments: Any) -> Any:
        struck_s.append(time.monotonic())
        return arguments

    monkeypatch.setitem(ACTS, "kill", note)
    injector = _injector(tmp_path, Fault("kill", "passes", (1, 1), 1, delay_s=0.05))
    entered_s, before = time.monotonic(), set(threading.enumerate())
    injector.enter("passes", 1)
    injector.enter("passes", 2)
    for timer in set(threading.enumerate()) - before:
        timer.join()
    (when_s,) = struck_s
    assert when_s - entered_s >= 0.05


def test_a_slow_process_computes_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    took: list[float] = []
    monkeypatch.setattr(injector_module, "_compute", took.append)
    monkeypatch.setattr(loop_module, "train_step", lambda: time.sleep(0.02))
    injector = _injector(tmp_path, Fault("slow", "call:step", (0, 0), 1, amount=0.5))
    injector.stand_at_seams()
    injector.enter("data", 0)
    called: Any = getattr(loop_module, "train_step")  # noqa: B009
    for _ in range(3):
        called()
    assert len(took) == 3
    assert min(took) >= 0.01
