"""The tolerant reader of result files; what each damage to a line is called is in tests/benchmark/judging/review."""

import math
from pathlib import Path

import pytest

from benchmark.run_record.events import mllog
from benchmark.run_record.events.mllog import (
    MOST_BYTES,
    MOST_PROBLEMS,
    ResultLog,
    as_number,
    lines_by_number,
    parse_log,
    read_log,
)
from foundation.plain_text import printable, shortened
from tests.benchmark.judging.review.fixture import as_text, records

RECORD = '{"key": "seed", "value": 7, "time_ms": 1, "event_type": "POINT_IN_TIME", "metadata": {"epoch_num": 8}}'


def log_of(text: str) -> ResultLog:
    return parse_log(Path("x"), text.encode())


def test_records_are_read_from_among_other_programs_lines() -> None:
    text = f"NCCL says hello\n12: :::MLLOG {RECORD}\r\n\r:::MLLOG {RECORD.replace('7', '8').replace('1,', '1.75,', 1)}"
    log = log_of(text)
    found = [(event.line, event.key, event.value, event.time_ms) for event in log.events]
    assert found == [(2, "seed", 7, 1), (4, "seed", 8, 1)]
    assert (log.num_lines, log.size_bytes, log.problems) == (4, len(text), ())
    assert (log.events[0].number, log.events[0].metadata["epoch_num"]) == (7, 8)
    content = b"\n" * 300_000 + f"x:::MLLOG {RECORD}".encode() + b"\r\r\n" + b"\n" * 100_000
    log = parse_log(Path("x"), content)
    assert ([event.line for event in log.events], log.num_lines) == ([300_001], 400_002)
    lines = {1: "", 300_001: f"x:::MLLOG {RECORD}", 400_002: ""}
    assert lines_by_number(content, {*lines, 400_003}) == lines
    assert lines_by_number(b"", {1}) == {}


def test_values_by_key() -> None:
    log = log_of(as_text(records(7, evaluations=3)))
    assert (log.value("seed"), log.number("seed"), log.text("seed")) == (7, 7, None)
    assert (log.text("opt_name"), log.number("opt_name")) == ("adam", None)
    assert (log.value("nothing"), log.first("nothing"), log.last("nothing"), log.all("nothing")) == (None,) * 3 + ((),)
    first, last = log.first("eval_accuracy"), log.last("eval_accuracy")
    assert first is not None
    assert last is not None
    assert (first.line, last.line, len(log.all("eval_accuracy"))) == (41, 51, 3)


def test_numbers_are_finite_and_no_booleans() -> None:
    for value in (3, 2.5, 0):
        assert as_number(value) == value
    for other in (True, "3", None, math.nan, math.inf, 10**400):
        assert as_number(other) is None
    assert repr(as_number(10**300)) == "1e+300"


@pytest.mark.parametrize(
    ("old", "new", "found", "expected"),
    [
        ('"seed"', "5", "key 5", "key: a string"),
        ('"time_ms": 1', '"time_ms": 1e18', "time_ms 1e+18", "time_ms: milliseconds since the epoch"),
        ('{"epoch_num": 8}', "[]", "metadata []", "metadata: an object"),
    ],
)
def test_fields_of_another_type_lose_the_record(old: str, new: str, found: str, expected: str) -> None:
    log = log_of(f":::MLLOG {RECORD.replace(old, new)}\n")
    assert (log.events, log.problems[0].observed, log.problems[0].expected) == ((), found, expected)


def test_oddities_lose_no_record_and_are_one_problem() -> None:
    (problem,) = log_of(f":::MLLOG {RECORD.replace('POINT_IN_TIME', 'LATER')}\n").problems
    assert (problem.fatal, problem.observed) == (False, "event_type 'LATER'")
    fields = ", ".join(f'"k{number % 300}": 1' for number in range(600))
    log = log_of(f":::MLLOG {RECORD[:-1]}, {fields}}}\n:::MLLOG {RECORD}\n")
    (problem,) = log.problems
    assert problem.observed.startswith("fields 'k0', 'k1', 'k10'")
    assert (len(log.events), problem.line, len(problem.observed) < 200) == (2, 1, True)


def test_problems_values_and_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(":::MLLOG {\n" * (MOST_PROBLEMS + 5))
    assert len(log.problems) == MOST_PROBLEMS + 1
    assert (log.problems[0].line, log.problems[-1].observed) == (1, "6 more lines that cannot be read")
    assert log.problems[0].observed == "{ (Expecting property name enclosed in double quotes: line 1 column 2 (char 1))"
    monkeypatch.setattr(mllog, "MOST_VALUES", 25)
    log = log_of(f":::MLLOG {RECORD}\n" * 9)
    assert (len(log.events), log.problems[0].line, log.problems[0].fatal) == (6, 7, True)
    path = tmp_path / "result_0.txt"
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    log = read_log(path)
    assert (log.events, log.num_lines) == ((), 0)
    assert [(one.line, one.observed) for one in log.problems] == [(None, "268,435,457 bytes, more than 268,435,456")]
    assert [problem.observed for problem in read_log(tmp_path / "nothing").problems] == ["No such file or directory"]


def test_texts_of_strangers_fit_one_line() -> None:
    assert printable("\x1b[31mred\x07 ä\n") == "?[31mred? ä?"
    assert (shortened("  abcdef \n", 6), shortened("abcdefg", 6)) == ("abcdef", "abcde…")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", ": an empty file"), (b"\x1f\x8b\x08", ": packed by gzip"), (b"PK\x03\x04", ": a zip archive"),
        (f":::MLLOG {RECORD}\n".encode("utf-16"), ": UTF-16, not UTF-8"), (b"step 1\n", ""),
    ],
)  # fmt: skip
def test_a_file_without_records_is_called_what_it_is(content: bytes, kind: str) -> None:
    (problem,) = parse_log(Path("x"), content).problems
    assert (problem.line, problem.observed) == (None, f"no MLLOG record{kind}")
