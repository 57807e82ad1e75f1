"""A run that reached its target and was killed then has ended: its log is the record."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmark.run_record.run_completion import complete_run

CONFIG = {"result_number": 2, "benchmark": {"model": {"seq_length": 64}}, "data": {"seed": 17}}
LINES: tuple[tuple[str, Any, dict[str, Any]], ...] = (
    ("run_start", None, {}),
    ("eval_accuracy", 5.0, {"epoch_num": 640}),
    ("restart", 1, {"step": 512}),
    ("eval_accuracy", 4.5, {"epoch_num": 1280}),
    ("run_stop", None, {"status": "success"}),
    ("train_samples", 1280, {}),
    ("trained_samples", 1280, {}),
    ("epoch_stop", None, {"epoch_num": 1280}),
)


def log_of(*lines: tuple[str, Any, dict[str, Any]]) -> str:
    records = [
        {"key": key, "value": value, "time_ms": 1000 * number, "metadata": metadata}
        for number, (key, value, metadata) in enumerate(lines)
    ]
    return "".join(f":::MLLOG {json.dumps(record)}\n" for record in records)


def completed(run_dir: Path, log: str) -> dict[str, Any] | None:
    (run_dir / "config.json").write_text(json.dumps(CONFIG))
    (run_dir / "result_2.txt").write_text(log)
    complete_run(run_dir)
    summary = run_dir / "summary.json"
    return json.loads(summary.read_text()) if summary.exists() else None


@pytest.mark.parametrize("number_of_lines", range(5, 9))
@pytest.mark.parametrize("torn", ["", ':::MLLOG {"key": "trai'])
def test_the_log_gives_the_summary_and_gets_the_entries_that_it_lacks(
    number_of_lines: int, torn: str, tmp_path: Path
) -> None:
    summary = completed(tmp_path, log_of(*LINES[:number_of_lines]) + torn)
    assert summary == {
        "status": "success",
        "seed": 17,
        "trained_tokens": 1280,
        "trained_samples": 20,
        "evaluations": [
            {"trained_tokens": 640, "log_perplexity": 5.0},
            {"trained_tokens": 1280, "log_perplexity": 4.5},
        ],
        "run_s": 2.0,
        "tokens_per_s": (1280 - 512) / 2,
        "first_loss_s": None,
        "restarts": 1,
        "result": str(tmp_path / "result_2.txt"),
    }
    records = [json.loads(line[9:]) for line in (tmp_path / "result_2.txt").read_text().splitlines()]
    assert [(one["key"], one["value"]) for one in records] == [(key, value) for key, value, _ in LINES]
    assert records[-1]["metadata"]["epoch_num"] == 1280


@pytest.mark.parametrize(
    "log",
    [
        "",
        log_of(*LINES[:4]),
        log_of(*LINES[:4]) + ':::MLLOG {"key": "run_stop", "metadata": {"status": "success"}}',  # not a whole line
        log_of(*LINES[:4], ("run_stop", None, {"status": "aborted"})),
        log_of(("run_stop", None, {"status": "success"})),  # without an evaluation
    ],
)
def test_any_other_run_is_left_alone(log: str, tmp_path: Path) -> None:
    assert completed(tmp_path, log) is None
    assert (tmp_path / "result_2.txt").read_text() == log


def test_an_ended_run_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"status": "target not reached"}')
    assert completed(tmp_path, log_of(*LINES[:5])) == {"status": "target not reached"}
