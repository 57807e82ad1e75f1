"""What is done when a GPU runs out of memory, with stand-ins for what PyTorch has on a GPU only."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from benchmark.debugging.memory_snapshot import snapshot_when_out_of_memory

Observer = Callable[[int, int, int, int], None]


@pytest.fixture
def observers(monkeypatch: pytest.MonkeyPatch) -> list[Observer]:
    found: list[Observer] = []
    monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", found.append, raising=False)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda **_: None)
    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", lambda path: Path(path).write_text("snapshot"))
    return found


def test_one_snapshot_is_written(observers: list[Observer], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rank_00003.memory.pickle"
    snapshot_when_out_of_memory(path)
    (observer,) = observers
    assert not path.exists()
    for _ in range(2):
        observer(3, 5 * 2**30, 70 * 2**30, 2**29)
    assert path.read_text() == "snapshot"
    said = capsys.readouterr().err
    assert said == f"out of memory: 5.00 GiB wanted, 0.50 GiB free on device 3; see {path}\n"


def test_a_disk_that_refuses_it_is_a_warning(
    observers: list[Observer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot_when_out_of_memory(tmp_path / "no folder" / "memory.pickle")
    observers[0](0, 1, 1, 1)
    assert capsys.readouterr().err.startswith("warning: ")
