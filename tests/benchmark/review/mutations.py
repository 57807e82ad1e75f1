"""Logs and descriptions as nobody would write them: strategies for Hypothesis that know what a log is made of."""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.benchmark.review.fixture import Record, records, system_description

BASE = [records(1, evaluations=6), records(2, evaluations=3, batch_size=3072)]
DEEP: Any = 1
for _ in range(60):
    DEEP = [DEEP, {"a": DEEP}] if not isinstance(DEEP, list) else [DEEP]
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 7, 2048, 2047.5, 1e-310, 5e-324, 1e308, -1e308, 2**63, 10**300, 10**400, -(10**400),
    float("nan"), float("inf"), float("-inf"), "", " ", "gpt3", "closed", "open", "success", "aborted", "2048", "NaN",
    "x" * 2000, "\x1b[31mred\x07", "[bold]markup[/bold]", "\u202etxt.exe", "\ud800", "a\nb\r\nc", "é\u0000",
    "../../etc", "=1+1", "<script>alert(1)</script>", [], {}, [1, "2", None], {"a": {"b": []}}, [[]] * 50, DEEP,
)  # fmt: skip
KEYS = [*sorted({record["key"] for record in records(1, evaluations=1)}), "restart", "tracked_stats", "", "x" * 500]
FIELDS = ("namespace", "time_ms", "event_type", "key", "value", "metadata")
NAMES = ("epoch_num", "first_epoch_num", "epoch_count", "samples_count", "step_num", "step", "status", "file", "lineno")
STATS = ("throughput", "train_step_timing", "train_step_timing in s", "reduced_train_loss", "validation_step_timing")

odd = st.sampled_from(ODD) | st.integers() | st.floats() | st.text(max_size=20) | st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
small = st.integers(0, 2**31)
Change = Callable[[list[Record]], None]


def _any(run: list[Record], place: int) -> Record:
    return run[place % len(run)]


def _set_field(place: int, name: str, value: Any) -> Change:
    return lambda run: _any(run, place).__setitem__(name, value)


def _set_metadata(place: int, name: str, value: Any) -> Change:
    def change(run: list[Record]) -> None:
        fields = _any(run, place).get("metadata")
        if isinstance(fields, dict):
            fields[name] = value

    return change


def _drop_field(place: int, name: str) -> Change:
    return lambda run: _any(run, place).pop(name, None) and None


def _of_key(key: str, value: Any) -> Change:
    def change(run: list[Record]) -> None:
        for record in run:
            if record.get("key") == key:
                record["value"] = value

    return change


def _move(place: int, other: int) -> Change:
    return lambda run: run.insert(other % len(run), run.pop(place % len(run)))


def _drop(place: int, count: int) -> Change:
    def change(run: list[Record]) -> None:
        start = place % len(run)
        del run[start : start + count]
        run.append(dict(records(1, evaluations=1)[0]))

    return change


def _repeat(place: int, times: int) -> Change:
    def change(run: list[Record]) -> None:
        start = place % len(run)
        run[start:start] = [dict(run[start]) for _ in range(times)]

    return change


def _insert(place: int, key: str, name: str, value: Any) -> Change:
    def change(run: list[Record]) -> None:
        before = _any(run, place)
        metadata = {"file": "x", "lineno": 1, "step": value if name == "step" else 5}
        run.insert(place % len(run), {**before, "key": key, "value": {name: value}, "metadata": metadata})

    return change


def _shift(place: int, by: float) -> Change:
    def change(run: list[Record]) -> None:
        for record in run[place % len(run) :]:
            if isinstance(record.get("time_ms"), int):
                record["time_ms"] += by

    return change


def _twice(run: list[Record]) -> None:
    run += [dict(record) for record in run]


def _to_record(place: int, value: Any) -> Change:
    def change(run: list[Record]) -> None:
        run[place % len(run)] = {"odd": value}

    return change


changes = st.one_of(
    st.builds(_set_field, small, st.sampled_from(FIELDS), odd),
    st.builds(_set_field, small, st.just("value"), odd),
    st.builds(_set_field, small, st.just("key"), st.sampled_from(KEYS)),
    st.builds(_set_metadata, small, st.sampled_from(NAMES), odd),
    st.builds(_of_key, st.sampled_from(KEYS), odd),
    st.builds(_drop_field, small, st.sampled_from(FIELDS)),
    st.builds(_move, small, small),
    st.builds(_drop, small, st.integers(1, 40)),
    st.builds(_repeat, small, st.integers(1, 30)),
    st.builds(_insert, small, st.sampled_from(["restart", "tracked_stats", "seed"]), st.sampled_from(STATS), odd),
    st.builds(_shift, small, st.integers(-(10**14), 10**14) | st.floats(-1e6, 1e6)),
    st.builds(_to_record, small, odd),
    st.just(_twice),
)

splices = st.tuples(
    small,
    st.integers(0, 60),
    st.binary(max_size=30)
    | st.sampled_from(
        [b"\xef\xbb\xbf", b"\x00" * 9, b"\r", b"\n", b":::MLLOG ", b":::MLLOG {", b"\xff\xfe", b"1" * 400]
    ),
)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """A log with records, then bytes, spoilt."""
    run = [{**record, "metadata": dict(record["metadata"])} for record in draw(st.sampled_from(BASE))]
    for change in draw(st.lists(changes, min_size=1, max_size=5)):
        change(run)
    newline = draw(st.sampled_from(["\n", "\n", "\r\n", "\r"]))
    content = bytearray("".join(f":::MLLOG {json.dumps(record)}{newline}" for record in run).encode())
    for place, length, put in draw(st.lists(splices, max_size=3)):
        start = place % len(content) if content else 0
        content[start : start + length] = put
    return bytes(content)


@st.composite
def descriptions(draw: st.DrawFn) -> bytes:
    """A system description, spoilt likewise."""
    content = system_description()
    for name, value in draw(st.dictionaries(st.sampled_from(sorted(content)), odd, max_size=4)).items():
        content[name] = value
    for name in draw(st.lists(st.sampled_from(sorted(content)), max_size=2, unique=True)):
        del content[name]
    text = bytearray(json.dumps(draw(odd) if draw(st.integers(0, 9)) == 0 else content).encode())
    for place, length, put in draw(st.lists(splices, max_size=2)):
        start = place % len(text) if text else 0
        text[start : start + length] = put
    return bytes(text)
