"""What Weights & Biases is given, over restarts."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import benchmark.events.wandb_process as wandb_process
from benchmark.events.wandb_process import WandbCurve, WandbState, follow_run, read_lines, read_state, write_state
from tests.benchmark.events import wandb_stand_in
from tests.benchmark.events.wandb_stand_in import recorded
from tests.support import REPOSITORY


def step(iteration: int, loss: float = 2.5) -> dict[str, Any]:
    fields = {"iteration": iteration, "trained_tokens": (iteration - 4000) * 192, "loss": loss, "mfu": None}
    return {"time_ms": 1_700_000_000_000 + iteration * 1000, "key": "step", "value": None, **fields}


def evaluation(iteration: int, value: float = 2.7) -> dict[str, Any]:
    fields = {"trained_tokens": (iteration - 4000) * 192, "log_perplexity": value, "seconds": 1.0}
    return {"time_ms": 1_700_000_000_000, "key": "evaluation", "value": None, **fields}


def other(key: str, value: Any = None, **fields: Any) -> dict[str, Any]:
    return {"time_ms": 1_700_000_000_000, "key": key, "kind": "POINT_IN_TIME", "value": value, **fields}


def write_run(folder: Path, *events: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"benchmark": {"name": "tiny"}, "seed": 17}))
    with (folder / "events.jsonl").open("a") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)
    return folder


def curve_of(folder: Path, *events: dict[str, Any]) -> WandbCurve:
    curve = WandbCurve(wandb_stand_in, folder, "offline")
    curve.open()
    for event in events:
        curve.take(event)
    return curve


def logged(folder: Path, name: str) -> dict[int, Any]:
    """A metric by W&B's row."""
    return {row: figures[name] for row, figures in recorded(folder, "log") if name in figures}


def test_figures_over_tokens_and_the_configuration(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run_7")
    eta = other("eta", seconds=60.0, seconds_low=50.0, seconds_high=70.0)
    curve = curve_of(run, step(4001), evaluation(4001), other("checkpoint", seconds=0.5, steps=1), eta, step(4002))
    curve.close()
    options, settings = recorded(run, "init")[0]
    assert (options["project"], options["name"], options["mode"], options["resume"]) == (
        "tiny",
        "run_7",
        "offline",
        "allow",
    )
    assert options["config"]["seed"] == 17
    assert (settings["console"], settings["disable_git"], settings["x_disable_stats"]) == ("off", True, True)
    assert ["train/*", "trained_tokens"] in recorded(run, "metric")
    assert ["validation/*", "evaluated_tokens"] in recorded(run, "metric")
    assert logged(run, "train/loss") == {4001: 2.5, 4002: 2.5}
    assert recorded(run, "log")[1] == [
        4001,
        {
            "validation/log_perplexity": 2.7,
            "validation/seconds": 1.0,
            "evaluated_tokens": 192,
            "_timestamp": 1_700_000_000.0,
        },
    ]
    assert logged(run, "checkpoint/pause_s") == {4001: 0.5}
    assert logged(run, "eta/target_low_s") == {4001: 50.0}
    assert logged(run, "speed/mfu") == {}
    assert [figures["_timestamp"] for _, figures in recorded(run, "log")][-1] == 1_700_004_002.0


def test_messages_are_lines_of_a_file(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    long = "x" * 5000
    events = [other("message", "spike\nat 4002"), other("after_checkpoint", "failed", steps=8), other("seed", 17)]
    curve_of(run, *events, other("message", long)).close()
    lines = (run / "files" / "messages_1.txt").read_text().splitlines()
    assert lines[0] == "2023-11-14T22:13:20Z message: spike at 4002"
    assert lines[1].endswith('after_checkpoint: failed {"steps": 8}')
    assert [len(line) for line in lines[2:]] == [2000]
    assert recorded(run, "save") == [[str(run / "files" / "messages_1.txt"), "live"]]
    assert recorded(run, "finish")[0][0]["last_message"] == lines[-1]


def test_after_a_restart_the_curve_goes_on_and_what_is_done_again_is_left_out(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    first = curve_of(run, step(4001, 1.0), step(4002, 2.0), evaluation(4002, 2.9), step(4003, 3.0))
    write_state(run / "wandb", first.state)
    again = [step(4002, 22.0), evaluation(4002, 2.99), step(4003, 33.0)]
    restart = other("restart", 1, step=192)
    second = curve_of(run, restart, *again, evaluation(4003, 2.8), step(4004, 4.0), evaluation(4004, 2.7))
    assert second.state.id == first.state.id
    assert [options["id"] for options, _ in recorded(run, "init")] == [first.state.id] * 2
    assert logged(run, "train/loss") == {4001: 1.0, 4002: 2.0, 4003: 3.0, 4004: 4.0}
    values = [figures for _, figures in recorded(run, "log") if "validation/log_perplexity" in figures]
    found = [(one["evaluated_tokens"], one["validation/log_perplexity"]) for one in values]
    assert found == [(384, 2.9), (576, 2.8), (768, 2.7)]
    rows = [row for row, _ in recorded(run, "log")]
    assert rows == sorted(rows)
    assert logged(run, "restarts") == {4004: 1}  # 4003 was closed by the first process


def test_events_are_followed_until_the_end_and_unfinished_lines_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wandb_process, "POLL_S", 0.01)
    run = write_run(tmp_path / "run", step(4001))
    events, ended = run / "events.jsonl", threading.Event()
    curve = curve_of(run)
    follower = threading.Thread(target=follow_run, args=(curve, events, ended))
    follower.start()
    deadline = time.monotonic() + 60
    while curve.state.iteration < 4001 and time.monotonic() < deadline:
        time.sleep(0.01)
    write_run(run, step(4002))
    with events.open("a") as file:
        file.write('not json\n[1]\n{"key": "step", "iter')
    ended.set()
    follower.join(60)
    assert logged(run, "train/loss") == {4001: 2.5, 4002: 2.5}
    assert curve.state.offset == events.read_text().index('{"key": "step", "iter')
    kept = read_state(run / "wandb")
    assert kept is not None
    assert kept.offset == 0  # what W&B may not have sent is given to it again if this process dies now


def test_what_is_given_long_enough_is_done_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wandb_process, "POLL_S", 0.01)
    monkeypatch.setattr(wandb_process, "LAG_S", 0.05)
    run = write_run(tmp_path / "run", step(4001))
    ended = threading.Event()
    curve = curve_of(run)
    follower = threading.Thread(target=follow_run, args=(curve, run / "events.jsonl", ended))
    follower.start()
    deadline = time.monotonic() + 60
    while (found := read_state(run / "wandb")) is None or (found.offset == 0 and time.monotonic() < deadline):
        time.sleep(0.01)
    ended.set()
    follower.join(60)
    kept = read_state(run / "wandb")
    assert kept is not None
    assert (kept.iteration, kept.offset) == (4001, (run / "events.jsonl").stat().st_size)


@pytest.mark.parametrize("content", ["", "[]", '{"id": ""}', '{"id": "a", "offset": -1}', '{"id": "a", "offset": "1"}'])
def test_damaged_state_begins_a_new_curve(tmp_path: Path, content: str) -> None:
    run = write_run(tmp_path / "run")
    write_state(run / "wandb", WandbState("abc", offset=5))
    assert curve_of(run).state == WandbState("abc", offset=5, opened=1)
    (run / "wandb" / "state.json").write_text(content)
    begun = curve_of(run).state
    assert len(begun.id) == 16
    assert begun.offset == 0


def test_no_file_no_lines(tmp_path: Path) -> None:
    assert list(read_lines(tmp_path / "events.jsonl", 0)) == []


@pytest.mark.slow
def test_the_real_package_writes_offline_and_continues(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    run = write_run(tmp_path / "run", step(4001), evaluation(4001))
    words = [sys.executable, "-m", "benchmark.events.wandb_process", str(run), "offline"]
    for _ in range(2):
        done = subprocess.run(words, cwd=REPOSITORY, stdin=subprocess.DEVNULL, capture_output=True, timeout=240)
        assert done.returncode == 0, done.stderr
        write_run(run, step(4001), step(4002))
    state = read_state(run / "wandb")
    assert state is not None
    assert (state.iteration, state.opened) == (4002, 2)
    files = sorted((run / "wandb").glob(f"offline-run-*/run-{state.id}.wandb"))
    assert len(files) == 2
    assert [path.read_bytes().count(b"train/loss") > 0 for path in files] == [True, True]
