"""A log of values of any kind beside a chain. Falsified logs: tests/benchmark/replay/test_replay_run.py."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmark.evidence.chain_and_log import log_deviations, went_back
from benchmark.evidence.chain_links import EVIDENCE, read_chain
from benchmark.evidence.link_contents import Content
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


TOKENS = TINY.global_batch_size * TINY.model.seq_length


def said_of(tmp_path: Path, chain: list[Content], *records: tuple[str, Any, dict[str, Any]]) -> list[str]:
    """Deviations but for those of the stamps."""
    write(tmp_path / EVIDENCE, chain)
    log = read_log(log_of(tmp_path / "result_0.txt", *records))
    found = log_deviations(read_chain(tmp_path / EVIDENCE), log, TINY)
    return [f"{one.log_line}: {one.line()}" for one in found if "nothing" not in one.recorded]


def test_a_restart_stands_in_both(tmp_path: Path) -> None:
    """HONEST goes on from the checkpoint after 3 steps."""
    evaluation = ("eval_accuracy", 2.75, {"epoch_num": 4 * TOKENS})
    restart = ("restart", 1, {"step": 3 * TOKENS})
    honest = said_of(tmp_path, HONEST[:-1], evaluation, restart)
    assert [line for line in honest if "restart" in line] == []
    hidden = said_of(tmp_path, HONEST[:-1], evaluation)
    assert (
        f"None: step 3: restart in the log: recorded none, found 1 more in the chain, after {3 * TOKENS} tokens"
        in hidden
    )
    elsewhere = said_of(tmp_path, HONEST[:-1], evaluation, restart, ("restart", 2, {"step": 2 * TOKENS}))
    due = f"3: restart in the log: recorded after {2 * TOKENS} tokens, found no such link in the chain"
    assert due in elsewhere


@pytest.mark.parametrize(("given", "holds"), [(100, True), (125, True), (126, False), (99, False), ("all", False)])
def test_the_whole_validation_set_is_scored(given: Any, holds: bool, tmp_path: Path) -> None:
    """100 tokens by the chain."""
    said = said_of(tmp_path, HONEST, ("eval_samples", given, {}))
    assert any("100 tokens scored after 4 steps, by the chain" in line for line in said) != holds


def test_evaluations_beyond_the_chain_are_a_gap(tmp_path: Path) -> None:
    later = [("eval_accuracy", 2.7, {"epoch_num": step * TOKENS}) for step in (2, 8)]
    said = [line for line in said_of(tmp_path, HONEST[:-1], *later) if "evaluation in the log: recorded after" in line]
    assert said == [f"1: evaluation in the log: recorded after {2 * TOKENS} tokens, found no such link in the chain"]


def test_going_back_is_in_the_log(tmp_path: Path) -> None:
    assert went_back(read_log(log_of(tmp_path / "result_0.txt", ("rollback", {}, {}))))
    assert not went_back(read_log(log_of(tmp_path / "result_0.txt", ("seed", 1, {}))))
