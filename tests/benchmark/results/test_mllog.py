"""The tolerant reader of result files; what each damage to a line is called is in tests/benchmark/review."""

from pathlib import Path

import pytest

from benchmark.results import mllog
from benchmark.results.mllog import MOST_BYTES, MOST_PROBLEMS, lines_by_number, parse_log, read_log

RECORD = '{"key": "seed", "value": 7, "time_ms": 1, "event_type": "POINT_IN_TIME", "metadata": {"epoch_num": 8}}'


def test_records_are_read_from_among_other_programs_lines() -> None:
    text = f"NCCL says hello\n12: :::MLLOG {RECORD}\r\n\r:::MLLOG {RECORD.replace('7', '8')}"
    log = parse_log(Path("x"), text.encode())
    assert [(event.line, event.key, event.value, event.time_ms) for event in log.events] == [
        (2, "seed", 7, 1),
        (4, "seed", 8, 1),
    ]
    assert (log.num_lines, log.size_bytes, log.problems) == (4, len(text), ())
    assert (log.events[0].number, log.events[0].metadata["epoch_num"]) == (7, 8)


def test_problems_are_told_up_to_a_number() -> None:
    log = parse_log(Path("x"), b":::MLLOG {\n" * (MOST_PROBLEMS + 5))
    assert len(log.problems) == MOST_PROBLEMS + 1
    assert (log.problems[0].line, log.problems[-1].found) == (1, "6 more lines that cannot be read")
    assert log.problems[0].found == "{ (Expecting property name enclosed in double quotes: line 1 column 2 (char 1))"


def test_event_type_that_is_none_loses_no_record() -> None:
    log = parse_log(Path("x"), f":::MLLOG {RECORD.replace('POINT_IN_TIME', 'LATER')}\n".encode())
    (problem,) = log.problems
    assert (len(log.events), problem.fatal, problem.found) == (1, False, "event_type 'LATER'")


def test_file_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "result_0.txt"
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    log = read_log(path)
    assert (log.events, log.num_lines) == ((), 0)
    assert [(problem.line, problem.found) for problem in log.problems] == [
        (None, "268,435,457 bytes, more than 268,435,456")
    ]
    assert [problem.found for problem in read_log(tmp_path / "nothing").problems] == ["No such file or directory"]


@pytest.mark.parametrize(
    ("old", "new", "found", "expected"),
    [
        ('"seed"', "5", "key 5", "key: a string"),
        ('"time_ms": 1', '"time_ms": 1e18', "time_ms 1e+18", "time_ms: milliseconds since the epoch"),
        ('{"epoch_num": 8}', "[]", "metadata []", "metadata: an object"),
    ],
)
def test_fields_of_another_type_lose_the_record(old: str, new: str, found: str, expected: str) -> None:
    log = parse_log(Path("x"), f":::MLLOG {RECORD.replace(old, new)}\n".encode())
    assert (log.events, log.problems[0].found, log.problems[0].expected) == ((), found, expected)


def test_a_time_may_be_a_fraction() -> None:
    (whole,) = parse_log(Path("x"), f":::MLLOG {RECORD.replace('1,', '1.75,', 1)}\n".encode()).events
    assert whole.time_ms == 1


def test_lines_without_records_are_only_counted() -> None:
    content = b"\n" * 3_000_000 + f"x:::MLLOG {RECORD}".encode() + b"\r\r\n" + b"\n" * 1_000_000
    log = parse_log(Path("x"), content)
    assert ([event.line for event in log.events], log.num_lines) == ([3_000_001], 4_000_002)
    assert lines_by_number(content, {1, 3_000_001, 4_000_002, 4_000_003}) == {
        1: "",
        3_000_001: f"x:::MLLOG {RECORD}",
        4_000_002: "",
    }
    assert lines_by_number(b"", {1}) == {}


def test_many_fields_twice_are_one_problem() -> None:
    fields = ", ".join(f'"k{number % 30_000}": 1' for number in range(60_000))
    log = parse_log(Path("x"), f":::MLLOG {RECORD[:-1]}, {fields}}}\n".encode())
    (problem,) = log.problems
    assert problem.found.startswith("fields 'k0', 'k1', 'k10'")
    assert len(problem.found) < 200


def test_values_are_bounded_over_the_whole_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mllog, "MOST_VALUES", 25)
    log = parse_log(Path("x"), f":::MLLOG {RECORD}\n".encode() * 9)
    assert len(log.events) == 6
    assert (log.problems[0].line, log.problems[0].fatal) == (7, True)
