"""Return results as pandas DataFrames: events, records of a log, evaluations, runs, systems, the published results.

``published_runs.csv`` holds the table of runs of rounds 3.0 to 4.1, made from the rounds' repositories
(mlcommons/training_results_v3.0 63e326c4, v3.1 d06288b2, v4.0 6fe95437, v4.1 b87b9e39) by
``python -m benchmark.results.write_published``.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import pandas

from benchmark.results.mllog import read_log
from benchmark.results.printable import printable, shortened
from benchmark.results.recorded_events import read_events
from benchmark.results.recorded_run import read_recorded_run
from benchmark.results.result_log import MOST_EXACT, ResultLog, as_number
from benchmark.results.run_columns import PUBLISHED_RUNS, RUN_TYPES, TIME, run_record
from benchmark.results.run_summary import RunSummary
from benchmark.results.score import score
from benchmark.results.subjects import ResultSet
from stage.errors import InputError

SYSTEM_KEYS = ("round", "package", "system_folder")
MOST_CHARACTERS = 32_000
"""Largest number of characters in a cell; Excel takes 32,767."""
FORMULA = re.compile(r"(^\W*?|[,;|\"'`]\s*)(?=[=+\-@\uFF1D\uFF0B\uFF0D\uFF20])")
"""Place before a character with which a spreadsheet begins a formula: at the start of a text, or where a spreadsheet
may cut the text."""


def events_frame(path: Path | str) -> pandas.DataFrame:
    """Return the ``events.jsonl`` of a run, given the file or its run folder: a row per event, in their order.

    Columns: ``time`` (UTC), ``key``, ``value``, and one for each field that any event has. Whole numbers and fractions
    are numbers, objects and lists are JSON texts. Raises InputError if there is no such file.
    """
    path = Path(path)
    file = path / "events.jsonl" if path.is_dir() else path
    if not file.is_file():
        raise InputError(f"{file}: no such file; give a run folder, or its events.jsonl")
    events = read_events(file)
    records = [{"key": event.key, "value": event.value, **event.fields} for event in events]
    return _timed({}, [event.time_ms for event in events], records)


def log_frame(path: Path | str) -> pandas.DataFrame:
    """Return every record of an MLPerf log: ``line``, ``time`` (UTC), ``key``, ``value`` and its metadata's fields."""
    events = read_log(Path(path)).events
    records = [{**event.metadata, "key": event.key, "value": event.value} for event in events]
    lines = {"line": [event.line for event in events]}
    return _timed(lines, [event.time_ms for event in events], records)


def evaluations_frame(path: Path | str) -> pandas.DataFrame:
    """Return every evaluation of a run, given its log or folder: ``tokens``, ``log_perplexity``, ``minutes`` since
    run_start, and its ``seconds`` if they are logged. Raises InputError without a log."""
    summary = read_recorded_run(Path(path)).summary
    start = summary.run_start_ms
    rows = [
        (one.tokens, one.log_perplexity, None if start is None else (one.time_ms - start) / 60_000, one.seconds)
        for one in summary.evaluations
    ]
    return pandas.DataFrame(rows, columns=["tokens", "log_perplexity", "minutes", "seconds"], dtype="Float64")


def runs_frame(sets: Iterable[ResultSet]) -> pandas.DataFrame:
    """Return a row per run, in the columns of :data:`RUN_TYPES`; the index numbers the sets.

    A set without any result file has one row, with the known facts about its system.
    """
    records = [(number, record) for number, one in enumerate(sets) for record in run_records(one)]
    return frame_of([record for _, record in records], RUN_TYPES, [number for number, _ in records])


def run_records(one: ResultSet) -> list[dict[str, Any]]:
    """Return the values of the columns for each run of a set; those of an empty log for a set without files."""
    runs = one.runs or (RunSummary(ResultLog(one.folder or Path(), 0, 0, (), ())),)
    system = score(one)
    return [run_record(one, system, run) for run in runs]


def frame_of(
    records: Sequence[Mapping[str, Any]], types: Mapping[str, str], systems: Sequence[int]
) -> pandas.DataFrame:
    """Return a row per record, in columns of these pandas types; the index says which ``systems`` they belong to.

    A value of another kind than its column counts as missing, and texts are made printable.
    """
    columns = {name: _typed([record.get(name) for record in records], dtype) for name, dtype in types.items()}
    frame = pandas.DataFrame(columns)
    frame.index = pandas.Index(systems, name="system")
    return frame


def systems_frame(runs: pandas.DataFrame) -> pandas.DataFrame:
    """Return the row of each system's middle run by time; for a system without any time, its first row."""

    def middle(group: pandas.DataFrame) -> pandas.DataFrame:
        by_time = group.sort_values("minutes", kind="stable")
        return by_time.iloc[[int(by_time["minutes"].count()) // 2]]

    groups = [middle(group) for _, group in runs.groupby(level=0, sort=False)]
    return pandas.concat(groups) if groups else runs


def published_frame() -> pandas.DataFrame:
    """Return the 126 published GPT-3 runs of rounds 3.0 to 4.1 in the same columns; the index numbers the systems."""
    types: Any = {name: "string" if dtype == TIME else dtype for name, dtype in RUN_TYPES.items()}
    frame = pandas.read_csv(PUBLISHED_RUNS, dtype=types)
    frame["run_started"] = pandas.to_datetime(frame["run_started"], utc=True).dt.as_unit("ms")
    frame.index = pandas.Index(frame.groupby(list(SYSTEM_KEYS), sort=False).ngroup(), name="system")
    return frame


def csv_text(frame: pandas.DataFrame, **form: Any) -> str:
    """Return the table as CSV. An apostrophe stands before any text that a spreadsheet might take for a formula."""
    texts = [name for name, dtype in frame.dtypes.items() if dtype == "string"]
    guarded = frame.assign(**{str(name): frame[name].str.replace(FORMULA, r"\1'", regex=True) for name in texts})
    return str(guarded.to_csv(index=False, lineterminator="\n", **form))


def _typed(values: Sequence[Any], dtype: Any) -> "pandas.Series[Any]":
    if dtype == TIME:
        times = numpy.array([as_number(value) for value in values], dtype=float)
        return pandas.Series(pandas.to_datetime(times, unit="ms", utc=True, errors="coerce")).astype(dtype)
    if dtype == "string":
        texts = [None if value is None else value if isinstance(value, str) else repr(value) for value in values]
        shown = [None if text is None else shortened(text, MOST_CHARACTERS) for text in texts]
        return pandas.Series(shown, dtype="string")
    numbers = [as_number(value) for value in values]
    if dtype == "Int64":
        whole = (one is not None and one == int(one) and abs(one) <= MOST_EXACT for one in numbers)
        numbers = [int(one or 0) if fits else None for one, fits in zip(numbers, whole, strict=True)]
    return pandas.Series(numbers, dtype=dtype)


def _timed(first: dict[str, Any], times_ms: Sequence[int], records: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """Return a row per record: the ``first`` columns, ``time``, ``key``, ``value``, and every other field."""
    times = pandas.to_datetime(list(times_ms), unit="ms", utc=True, errors="coerce")
    names = dict.fromkeys(["key", "value", *(name for record in records for name in record)])
    fields = {name: _column([record.get(name) for record in records]) for name in names if name not in ("time", *first)}
    return pandas.DataFrame({**first, "time": times, **fields})


def _column(values: list[Any]) -> "pandas.Series[Any]":
    """Return a column of numbers if all its values are numbers, else of texts; None becomes missing."""
    present = [value for value in values if value is not None]
    if present and all(as_number(value) is not None for value in present):
        return pandas.Series([as_number(value) for value in values], dtype="Float64")
    if present and all(isinstance(value, bool) for value in present):
        return pandas.Series(values, dtype="boolean")
    return pandas.Series([None if value is None else _text(value) for value in values], dtype="string")


def _text(value: Any) -> str:
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
