"""DataFrames for notebooks."""

from pathlib import Path

import pandas
import pytest

import benchmark.judging.results
from benchmark.judging.results import (
    evaluations_frame,
    events_frame,
    log_frame,
    published_frame,
    runs_frame,
    systems_frame,
)
from benchmark.judging.results.frames import RUN_TYPES, csv_text, frame_of
from benchmark.judging.results.judged import LLAMA8B
from benchmark.judging.results.subjects import SubmissionPackage
from foundation.errors import InputError
from tests.benchmark.judging.report.runs import write_run
from tests.benchmark.judging.review.fixture import ORG, write_package


def test_events_records_and_evaluations_of_a_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    frame = events_frame(run)
    steps = frame[frame["key"] == "step"]
    assert (len(steps), steps["step_s"].mean()) == (12, 0.5)
    assert list(frame.columns[:3]) == ["time", "key", "value"]
    assert str(frame["time"].dtype).startswith("datetime64")
    assert steps["time"].is_monotonic_increasing
    assert len(events_frame(run / "events.jsonl")) == len(frame)
    with (run / "events.jsonl").open("a") as file:
        file.write(
            '{"time_ms": 1, "key": "odd", "value": [1, {"a": "\\u001b"}], "time": 3, "s": "\\ud800\\u001b"}\n{"cut'
        )
    odd = events_frame(run).iloc[-1]
    assert (odd["value"], odd["s"]) == ('[1, {"a": "\\u001b"}]', "??")
    Path(run, "none").touch()
    assert events_frame(run / "none").query("key == 'step'").empty
    with pytest.raises(InputError, match="no such file; give a run folder"):
        events_frame(tmp_path)
    log = log_frame(run / "result_0.txt")
    assert log.loc[log["key"] == "seed", "value"].item() == 7
    assert (list(log.columns[:4]), log["line"].is_monotonic_increasing) == (["line", "time", "key", "value"], True)
    evaluations = evaluations_frame(run)
    assert list(evaluations["log_perplexity"]) == [5.5, 3.5, 2.43]
    assert evaluations["minutes"].iloc[-1] == pytest.approx(11 / 60)


def test_published_results_are_grouped_by_system() -> None:
    runs = published_frame()
    systems = systems_frame(runs)
    assert (len(runs), len(systems), len(published_frame(LLAMA8B))) == (126, 42, 0)
    assert systems.groupby("round")["score_minutes"].min()["4.1"] == pytest.approx(3.44425)
    oracle = runs[runs["system_folder"] == systems["system_folder"].iloc[-1]]
    assert systems["minutes"].iloc[-1] == oracle["minutes"].median()
    assert {name: str(runs[name].dtype) for name in RUN_TYPES} == RUN_TYPES


def test_runs_of_made_up_sets(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    (package / "results" / "empty" / "gpt3").mkdir(parents=True)
    runs = runs_frame(SubmissionPackage(package, "4.1.0").sets)
    assert list(runs.index) == [0, 0, 0, 1]
    assert list(runs["file"]) == ["result_0.txt", "result_1.txt", "result_2.txt", "gpt3"]
    first = runs.iloc[0]
    assert (first["submitter"], first["accelerators_count"], first["global_batch_size"]) == (ORG, 512, 2048)
    assert first["minutes"] == pytest.approx(52, abs=0.1)
    assert first["mfu"] == pytest.approx(first["tokens_per_s_per_accelerator"] * 1.0764 / 989.4, rel=1e-3)
    assert list(runs["peak_format"].astype(object).fillna("")) == ["BF16"] * 3 + [""]
    assert runs.iloc[3][["minutes", "score_minutes", "seed"]].isna().all()
    assert list(systems_frame(runs)["system_folder"]) == ["acme_h100x512", "empty"]
    assert len(runs_frame([])) == len(systems_frame(runs_frame([]))) == 0


def test_values_of_another_kind_are_missing_and_no_text_of_a_stranger_is_a_formula() -> None:
    types = {"n": "Int64", "x": "Float64", "t": "datetime64[ms, UTC]", "s": "string"}
    odd = frame_of([{"n": 10**25, "x": "fast", "t": 10**300, "s": {"a": "\x1b"}}, {"n": 2.0, "t": 1000}], types, [0, 1])
    assert odd.isna().to_numpy().tolist() == [[True, True, True, False], [False, True, False, True]]
    assert odd["s"].iloc[0] == "{'a': '\\x1b'}"
    cells = {"=1+1": "'=1+1", " @a": " '@a", "a;=b": "a;'=b", "\uff1dx": "'\uff1dx", "2 - 3": "2 - 3", "a=b": "a=b"}
    frame = pandas.DataFrame({"a": pandas.Series([*cells, None], dtype="string"), "n": -1.5})
    assert csv_text(frame) == "a,n\n" + "".join(f"{cell},-1.5\n" for cell in (*cells.values(), ""))


def test_interface_names_what_it_has() -> None:
    for name in benchmark.judging.results.__all__:
        assert callable(getattr(benchmark.judging.results, name))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = benchmark.judging.results.nothing
