"""DataFrames for notebooks."""

from pathlib import Path

import pytest

import benchmark.results
from benchmark.results import evaluations_frame, events_frame, log_frame, published_frame
from stage.errors import InputError
from tests.benchmark.report.runs import write_run


def test_events_of_a_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    frame = events_frame(run)
    steps = frame[frame["key"] == "step"]
    assert len(steps) == 12
    assert steps["step_s"].mean() == 0.5
    assert str(frame["time"].dtype).startswith("datetime64")
    assert steps["time"].is_monotonic_increasing
    assert len(events_frame(run / "events.jsonl")) == len(frame)
    with (run / "events.jsonl").open("a") as file:
        file.write('{"time_ms": 1, "key": "odd", "value": [1, {"a": "\\u001b"}], "time": 3, "n": 1e400}\n{"cut')
    odd = events_frame(run).iloc[-1]
    assert odd["value"] == '[1, {"a": "\\u001b"}]'
    with pytest.raises(InputError, match="no such file; give a run folder"):
        events_frame(tmp_path)


def test_records_and_evaluations_of_a_log(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    log = log_frame(run / "result_0.txt")
    assert log.loc[log["key"] == "seed", "value"].item() == "7"
    assert log["line"].is_monotonic_increasing
    evaluations = evaluations_frame(run)
    assert list(evaluations["log_perplexity"]) == [5.5, 3.5, 2.43]
    assert evaluations["minutes"].iloc[-1] == pytest.approx(11 / 60)


def test_published_results() -> None:
    frame = published_frame()
    assert (frame["row"] == "run").sum() == 126
    assert frame[frame["row"] == "system"].groupby("round")["score_minutes"].min()["4.1"] == pytest.approx(3.44425)


def test_interface_names_what_it_has() -> None:
    for name in benchmark.results.__all__:
        assert callable(getattr(benchmark.results, name))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = benchmark.results.nothing
