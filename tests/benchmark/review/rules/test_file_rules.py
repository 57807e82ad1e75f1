"""Two runs in a file, and one run twice, are one finding each."""

from pathlib import Path

from benchmark.results.subjects import ResultSet
from benchmark.review.verdict import own_findings
from tests.benchmark.review.damage import Log
from tests.benchmark.review.fixture import Record, as_text, records, write_run


def rules_of(run: list[Record], folder: Path) -> list[tuple[str, str, int | None]]:
    path = write_run(folder, run)
    found = own_findings(ResultSet("run", "4.1.0", [path], folder))
    return [(one.severity, one.rule, one.line) for one in found]


def test_two_runs_in_one_file(tmp_path: Path) -> None:
    first = records(1)
    assert rules_of(first + records(2), tmp_path) == [("error", "file.two_runs", len(first) + 3)]
    assert rules_of(first + records(2) + records(3, evaluations=5), tmp_path)[0][1] == "file.two_runs"
    cut = first[:60] + records(2)  # the first was killed
    assert rules_of(cut, tmp_path) == [("error", "file.two_runs", 63)]


def test_one_run_captured_twice(tmp_path: Path) -> None:
    twice = [record for record in records(1) for _ in range(2)]
    assert rules_of(twice, tmp_path) == [("error", "file.captured_twice", 6)]
    assert rules_of(records(1) + records(1), tmp_path)[0][1] == "file.captured_twice"


def test_a_record_repeated_is_neither(tmp_path: Path) -> None:
    log = Log(records(1))
    place = log.place("run_start")
    log.records.insert(place, log.copied(place))
    assert [rule for _, rule, _ in rules_of(log.records, tmp_path)] == ["key.once"]
    assert rules_of(records(1), tmp_path) == []


def test_the_other_logs_of_the_system_are_still_judged(tmp_path: Path) -> None:
    both, wrong = tmp_path / "result_0.txt", tmp_path / "result_1.txt"
    both.write_text(as_text(records(1) + records(2)))
    log = Log(records(3))
    log.set("opt_name", "adamw")
    wrong.write_text(as_text(log.records))
    found = own_findings(ResultSet("run", "4.1.0", [both, wrong], tmp_path))
    assert {"file.two_runs", "value.fixed"} <= {one.rule for one in found}
