"""What a result file's records are asked for."""

import math
from pathlib import Path

import pytest

from benchmark.results.mllog import parse_log
from benchmark.results.result_log import as_number
from tests.benchmark.review.fixture import as_text, records


def test_values_by_key() -> None:
    log = parse_log(Path("x"), as_text(records(7, evaluations=3)).encode())
    assert (log.value("seed"), log.number("seed"), log.text("seed")) == (7, 7, None)
    assert (log.text("opt_name"), log.number("opt_name")) == ("adam", None)
    assert (log.value("nothing"), log.first("nothing"), log.last("nothing"), log.all("nothing")) == (None,) * 3 + ((),)
    first, last = log.first("eval_accuracy"), log.last("eval_accuracy")
    assert first is not None
    assert last is not None
    assert (first.line, last.line) == (41, 51)
    assert len(log.all("eval_accuracy")) == 3


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3),
        (2.5, 2.5),
        (True, None),
        ("3", None),
        (None, None),
        (math.nan, None),
        (math.inf, None),
        (10**400, None),
        (10**300, 1e300),
    ],
    ids=repr,
)
def test_numbers_are_finite_and_no_booleans(value: object, number: float | None) -> None:
    assert as_number(value) == number
