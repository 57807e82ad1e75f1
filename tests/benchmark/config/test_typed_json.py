"""Dataclasses from a stranger's JSON: what fits becomes one, what does not is one line."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import Benchmark
from benchmark.config.system_config import System
from benchmark.config.systems import SYSTEMS
from benchmark.config.typed_json import dataclass_from_json, float_as_json, value_from_json
from stage.errors import InputError


@dataclass(frozen=True)
class Inner:
    rate: float
    at: tuple[int, ...] = ()


@dataclass(frozen=True)
class Outer:
    number: int
    inner: Inner
    path: Path | None = None
    kind: Literal["a", "b"] = "a"
    pair: tuple[int, str] = (0, "")
    anything: dict[str, Any] | None = None


def test_benchmarks_and_systems_come_back_as_they_were() -> None:
    for kind, value in ((Benchmark, GPT3_175B), (System, SYSTEMS["dgxh100_n64"])):
        assert dataclass_from_json(kind, json.loads(json.dumps(asdict(value))), "it") == value


def test_values_have_their_types() -> None:
    found = {"number": 3, "inner": {"rate": 1, "at": [1, 2]}, "path": "x", "pair": [1, "y"], "anything": {"z": [None]}}
    expected = Outer(3, Inner(1.0, (1, 2)), Path("x"), "a", (1, "y"), {"z": [None]})
    assert dataclass_from_json(Outer, found, "it") == expected


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"number": True}, "it.number: got True; expected a whole number"),
        ({"number": 1.0}, "it.number: got 1.0"),
        ({"number": 10**400}, "it.number: got 1000.*…; expected a whole number of at most 63 bits"),
        ({"inner": None}, "it.inner: got None; expected an object with rate, at"),
        ({"inner": {}}, "it.inner: rate is missing"),
        ({"inner": {"rate": "1"}}, "it.inner.rate: got '1'; expected a number"),
        ({"inner": {"rate": 10**400}}, "it.inner.rate: got a number of 401 digits"),
        ({"inner": {"rate": 0, "at": [1, "2"]}}, r"it.inner.at\[1\]: got '2'"),
        ({"inner": {"rate": 0, "at": 3}}, "it.inner.at: got 3; expected a list"),
        ({"kind": "c"}, "it.kind: got 'c'; expected one of a, b"),
        ({"kind": ["a"]}, "it.kind: got"),
        ({"pair": [1]}, "it.pair: got 1 values; expected 2"),
        ({"path": "a\0b"}, "it.path: got"),
        ({"anything": [1]}, "it.anything: got"),
        ({"more": "x" * 1000}, "it: unknown field 'more'"),
        ({"number": "x" * 1000}, "xxx…; expected a whole number"),
    ],
)
def test_what_does_not_fit_is_one_line(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as refused:
        dataclass_from_json(Outer, {"number": 1, "inner": {"rate": 0.5}, **changes}, "it")
    assert len(str(refused.value)) < 200
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("value", [0.1, 1e-310, math.inf, -math.inf, math.nan])
def test_floats_come_back_to_the_bit(value: float) -> None:
    back = value_from_json(float, json.loads(json.dumps(float_as_json(value), allow_nan=False)), "it")
    assert back == value or (math.isnan(back) and math.isnan(value))
