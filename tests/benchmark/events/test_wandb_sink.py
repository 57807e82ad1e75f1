"""The process for Weights & Biases: it never holds up the run."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmark.events.background_sink import Background
from benchmark.events.wandb_process import read_state
from benchmark.events.wandb_sink import WandbSink
from stage.errors import InputError
from tests.benchmark.events import wandb_stand_in
from tests.benchmark.events.recorder import event
from tests.benchmark.events.test_wandb_process import step, write_run
from tests.benchmark.events.wandb_stand_in import recorded


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run's folder, where wandb is the stand-in, here and in processes started from here."""
    package = tmp_path / "packages" / "wandb"
    package.mkdir(parents=True)
    assert wandb_stand_in.__file__ is not None
    (package / "__init__.py").write_text(Path(wandb_stand_in.__file__).read_text())
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    return write_run(tmp_path / "run", step(4001))


@pytest.fixture
def sinks() -> Iterator[list[WandbSink]]:
    made: list[WandbSink] = []
    yield made
    for sink in made:
        if sink._process is not None:
            sink._process.kill()


def wait_for(file: Path, text: str) -> None:
    deadline = time.monotonic() + 60
    while not (file.exists() and text in file.read_text()):
        assert time.monotonic() < deadline, file
        time.sleep(0.02)


def test_wandb_that_is_not_installed_is_refused_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    (tmp_path / "wandb").mkdir()  # as the package leaves it where it writes
    with pytest.raises(InputError, match="--wandb needs wandb: pip install wandb"):
        WandbSink(tmp_path, "offline")


@pytest.mark.slow
def test_a_process_of_its_own_follows_the_run_to_its_end(run_dir: Path, sinks: list[WandbSink]) -> None:
    sinks.append(WandbSink(run_dir, "online", close_s=60.0))
    sinks[0].write(event("step"))
    wait_for(run_dir / "recorded.jsonl", "train/loss")
    write_run(run_dir, step(4002))
    sinks[0].close()
    assert [row for row, _ in recorded(run_dir, "log")] == [4001, 4002]
    assert recorded(run_dir, "finish") != []
    assert recorded(run_dir, "init")[0][0]["mode"] == "online"
    state = read_state(run_dir / "wandb")
    assert state is not None
    assert state.offset == (run_dir / "events.jsonl").stat().st_size


@pytest.mark.slow
def test_an_init_that_hangs_holds_up_nothing(run_dir: Path, sinks: list[WandbSink]) -> None:
    (run_dir / "hang").touch()
    sinks.append(WandbSink(run_dir, "online", close_s=0.2))
    background = Background(sinks[0])
    started = time.thread_time()  # of a processor: others may have this one
    for _ in range(1000):
        background.write(event("step"))
    assert time.thread_time() - started < 5.0
    wait_for(run_dir / "recorded.jsonl", "init")
    started = time.perf_counter()
    background.close()
    assert time.perf_counter() - started < 30.0
    process = sinks[0]._process
    assert process is not None
    assert process.poll() is None


@pytest.mark.slow
def test_one_that_fails_is_told_with_its_reason_and_started_again(run_dir: Path, sinks: list[WandbSink]) -> None:
    (run_dir / "refuse").touch()
    now_s = [0.0]
    sinks.append(WandbSink(run_dir, "online", retry_s=60.0, close_s=60.0, clock=lambda: now_s[0]))
    sink = sinks[0]
    sink.write(event("step"))
    assert sink._process is not None
    sink._process.wait(60)
    for now_s[0] in (1.0, 59.0):
        with pytest.raises(ConnectionError, match="RuntimeError: api_key not configured"):
            sink.write(event("step"))
    assert len(recorded(run_dir, "init")) == 1
    (run_dir / "refuse").unlink()
    now_s[0] = 61.0
    sink.write(event("step"))
    sink.close()
    assert [row for row, _ in recorded(run_dir, "log")] == [4001]
    assert len({options["id"] for options, _ in recorded(run_dir, "init")}) == 1
