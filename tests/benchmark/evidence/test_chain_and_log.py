"""A log of values of any kind beside a chain. Falsified logs: tests/benchmark/replay/test_replay_run.py."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmark.evidence.chain_and_log import log_deviations, went_back
from benchmark.evidence.chain_links import EVIDENCE, read_chain
from benchmark.results.mllog import read_log
from tests.benchmark.evidence.test_chain_checks import HONEST
from tests.benchmark.evidence.test_chain_links import write
from tests.benchmark.tiny import TINY


def log_of(path: Path, *records: tuple[str, Any, dict[str, Any]]) -> Path:
    lines = [
        {
            "namespace": "",
            "time_ms": 1000,
            "event_type": "POINT_IN_TIME",
            "key": key,
            "value": value,
            "metadata": metadata,
        }
        for key, value, metadata in records
    ]
    path.write_text("".join(f":::MLLOG {json.dumps(line)}\n" for line in lines))
    return path


@pytest.mark.parametrize("value", [None, [], {}, "x" * 10_000, 1e308, -1, True, float("nan")])
def test_values_of_any_kind_are_deviations_not_tracebacks(value: Any, tmp_path: Path) -> None:
    write(tmp_path / EVIDENCE, HONEST)
    keys = ("seed", "eval_accuracy", "tracked_stats", "evidence", "run_stop", "block_stop", "global_batch_size")
    records = [(key, value, {"epoch_num": value, "step": value, "status": value}) for key in keys]
    starts: list[tuple[str, Any, dict[str, Any]]] = [(key, value, {}) for key in ("block_start", "run_start")]
    log = read_log(log_of(tmp_path / "result_0.txt", *starts, *records))
    said = [one.line() for one in log_deviations(read_chain(tmp_path / EVIDENCE), log, TINY)]
    assert any(line.startswith("seed in the log") for line in said)
    assert max(map(len, said)) < 400


def test_a_run_that_goes_on_has_no_end_yet(tmp_path: Path) -> None:
    write(tmp_path / EVIDENCE, HONEST[:4])
    log = read_log(log_of(tmp_path / "result_0.txt", ("run_start", None, {})))
    said = [one.what for one in log_deviations(read_chain(tmp_path / EVIDENCE), log, TINY)]
    assert "the chain's end" not in said
    log = read_log(log_of(tmp_path / "result_0.txt", ("run_stop", None, {"status": "aborted"})))
    said = [one.what for one in log_deviations(read_chain(tmp_path / EVIDENCE), log, TINY)]
    assert "the chain's end" in said


def test_going_back_is_in_the_log(tmp_path: Path) -> None:
    assert went_back(read_log(log_of(tmp_path / "result_0.txt", ("rollback", {}, {}))))
    assert not went_back(read_log(log_of(tmp_path / "result_0.txt", ("seed", 1, {}))))
