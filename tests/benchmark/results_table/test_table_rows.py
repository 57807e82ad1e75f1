"""Rows: what each says of a package, a loose run, and one that could not be reviewed."""

from pathlib import Path

import pytest

from benchmark.results_table import results_frame
from benchmark.results_table.columns import NAMES
from benchmark.results_table.reviewed_places import ReviewedPlace, review_places
from benchmark.results_table.table_rows import frame_of, rows_of
from tests.benchmark.report.runs import write_run
from tests.benchmark.results_table.places import without_official_tools, write_round


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    without_official_tools(monkeypatch)


def test_package_has_a_row_per_system_and_run(tmp_path: Path) -> None:
    folder = write_round(tmp_path / "training_results_v4.1", ["ACME"])
    rows = rows_of(review_places([folder]))
    assert [row["row"] for row in rows] == ["system", "run", "run", "run"]
    assert all(tuple(row) == NAMES for row in rows)
    system, run = rows[0], rows[1]
    assert (system["round"], system["package"], system["system_folder"]) == ("4.1", "ACME", "acme_h100x512")
    assert (system["accelerators_count"], system["host_processors_count"]) == (512, 128)
    assert system["availability"] == "Available on-premise"
    assert system["other_software_stack"] == '{"cuda": "12.6"}'
    assert system["score_minutes"] == system["measured_minutes"]
    assert system["minutes"] == system["measured_minutes"] == pytest.approx(24 * 130 / 60, rel=0.02)
    assert system["mfu"] == pytest.approx(run["mfu"], abs=1e-3)
    assert (run["file"], run["seed"], run["evaluations"], run["restarts"]) == ("result_0.txt", 1001, 24, 0)
    assert len(str(run["evaluation_values"]).split()) == 24
    assert run["score_minutes"] is None
    assert system["seed"] is None
    assert str(run["run_started"]).startswith("202")
    assert str(run["run_started"]).endswith("+00:00")


def test_findings_stand_in_the_rows_they_are_about(tmp_path: Path) -> None:
    folder = write_round(tmp_path / "v4.1", ["ACME"])
    file = next(folder.rglob("result_1.txt"))
    file.write_text(
        file.read_text().replace('"opt_adam_epsilon", "value": 1e-08', '"opt_adam_epsilon", "value": 1e-06')
    )
    rows = rows_of(review_places([folder]))
    errors = {row["file"]: row["errors"] for row in rows}
    assert errors["result_1.txt"] == 1
    assert errors["result_0.txt"] == 0
    assert rows[0]["errors"] >= 1  # type: ignore[operator]
    assert "value.fixed" in str(rows[0]["errors_rules"])
    assert rows[0]["passed"] is False


def test_loose_run_of_ours(tmp_path: Path) -> None:
    rows = rows_of(review_places([write_run(tmp_path / "run")]))
    assert [row["row"] for row in rows] == ["system", "run"]
    assert rows[0]["package"] is None
    assert rows[0]["no_score_why"] == "a score takes 3 runs, there is 1"
    assert rows[1]["submission_benchmark"] == "gpt3_rehearsal"
    assert rows[1]["tokens"] == 24576


def test_place_without_review_has_a_row_that_says_why(tmp_path: Path) -> None:
    (row,) = rows_of([ReviewedPlace(tmp_path / "BAD", None, "the review failed")])
    assert (row["package"], row["passed"], row["problem"]) == ("BAD", False, "the review failed")


def test_frame_has_a_type_per_column(tmp_path: Path) -> None:
    frame = results_frame([write_round(tmp_path / "v4.1", ["A", "B"])])
    assert list(frame.columns) == list(NAMES)
    assert {str(frame[name].dtype) for name in ("mfu", "minutes")} == {"Float64"}
    assert str(frame["seed"].dtype) == "Int64"
    assert str(frame["passed"].dtype) == "boolean"
    middle = frame[frame["row"] == "run"].groupby("package")["minutes"].median()
    assert list(middle) == list(frame[frame["row"] == "system"]["measured_minutes"])
    assert len(frame_of([])) == 0
