"""What is read of a run that was disturbed."""

import json
from pathlib import Path

import pytest

from benchmark.config.run_config import RunConfig
from benchmark.drills.aftermath import read_aftermath
from benchmark.drills.injector import STRUCK
from benchmark.drills.practice import LAYOUTS, PRACTICE, PracticeInputs, practice_config
from benchmark.supervision.attempt_folder import attempt_path
from benchmark.supervision.incidents import own_incident, write_incident


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    made = practice_config(PracticeInputs(tmp_path), tmp_path / "run", LAYOUTS["2 processes"])
    made.run_dir.mkdir()
    return made


def _events(config: RunConfig, *events: tuple[str, dict[str, object]]) -> None:
    lines = [
        json.dumps({"time_ms": 1000 * n, "key": key, "kind": "", "value": None, **fields})
        for n, (key, fields) in enumerate(events)
    ]
    (config.run_dir / "events.jsonl").write_text("\n".join(lines))


def test_attempts_steps_and_saves(config: RunConfig, tmp_path: Path) -> None:
    first = PRACTICE.start_iteration
    _events(
        config,
        ("environment", {}),
        ("attempt", {"attempt": "0001", "resumed_at": None}),
        ("step", {"iteration": first + 1, "loss": 5.5}),
        ("checkpoint", {"steps": 1}),
        ("step", {"iteration": first + 2, "loss": 5.0}),
        ("attempt", {"attempt": "0003", "resumed_at": 1}),
        ("step", {"iteration": first + 2, "loss": 5.25}),
    )
    (tmp_path / STRUCK).write_text(
        json.dumps({"act": "kill", "at": "x", "rank": 1, "attempt": 1, "steps": 2, "time_s": 4.5, "checkpoints": [1]})
        + "\n"
    )
    left = read_aftermath(config, tmp_path)
    assert [(record.attempt, record.resumed_at) for record in left.records] == [(1, 0), (3, 1)]
    assert left.records[0].steps == ((1, 2.0, 5.5), (2, 4.0, 5.0))
    assert left.records[0].saves_begun == (1,)
    assert left.losses == {1: 5.5, 2: 5.25}
    assert (left.struck[0].act, left.struck[0].time_s) == ("kill", 4.5)


def test_nothing_there(config: RunConfig, tmp_path: Path) -> None:
    left = read_aftermath(config, tmp_path)
    assert (left.attempts, left.records, left.struck, left.log, left.finished, left.steps) == (
        (),
        (),
        (),
        (),
        None,
        None,
    )


def test_all_that_was_said(config: RunConfig, tmp_path: Path) -> None:
    attempt = attempt_path(config.run_dir, "0001")
    attempt.mkdir(parents=True)
    write_incident(attempt, own_incident(0, "n1", "disk", steps=3, phase="save", message="no space"))
    (attempt / "launcher.log").write_text("from the launcher")
    (tmp_path / "launcher_0.txt").write_text("to the terminal")
    left = read_aftermath(config, tmp_path)
    for words in ("no space", "from the launcher", "to the terminal"):
        assert words in left.said
    assert left.attempts[0].cause is not None


def test_lines_of_the_log_that_every_run_of_a_seed_has(config: RunConfig, tmp_path: Path) -> None:
    def line(key: str, value: object, time_ms: int, **metadata: object) -> str:
        fields = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key, "value": value}
        return f":::MLLOG {json.dumps({**fields, 'metadata': {'file': 'a.py', 'lineno': 1, **metadata}})}\n"

    path = config.run_dir / "result_0.txt"
    path.write_text(line("seed", 17, 5) + line("eval_accuracy", 4.5, 9, epoch_num=64))
    first = read_aftermath(config, tmp_path)
    path.write_text(
        line("seed", 17, 6)
        + line("restart", 1, 7)
        + line("tracked_stats", {}, 8)
        + line("eval_accuracy", 4.5, 10, epoch_num=64)
    )
    second = read_aftermath(config, tmp_path)
    assert first.log_lines() == second.log_lines()
    assert first.evaluations == second.evaluations == (4.5,)
