"""What a run left behind as pandas DataFrames."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.results.mllog import read_log
from benchmark.results.printable import printable
from benchmark.results.published_runs import PUBLISHED_RUNS
from benchmark.results.recorded_events import read_events
from benchmark.results.recorded_run import read_recorded_run
from benchmark.results.result_log import as_number
from stage.errors import InputError

if TYPE_CHECKING:
    import pandas


def events_frame(path: Path | str) -> "pandas.DataFrame":
    """``events.jsonl`` of a run, or of the run folder it lies in: a row per event, in their order.

    Columns: ``time`` (UTC), ``key``, ``value``, and one for each field that any event has. Whole numbers and fractions
    are numbers, objects and lists JSON texts. Raises InputError where there is no such file.
    """
    import pandas

    path = Path(path)
    file = path / "events.jsonl" if path.is_dir() else path
    if not file.is_file():
        raise InputError(f"{file}: no such file; give a run folder, or its events.jsonl")
    events = read_events(file)
    times = pandas.to_datetime([event.time_ms for event in events], unit="ms", utc=True, errors="coerce")
    records = [{"key": event.key, "value": event.value, **event.fields} for event in events]
    names = list(dict.fromkeys(["key", "value", *(name for record in records for name in record)]))
    columns = {name: _column([record.get(name) for record in records]) for name in names}
    return pandas.DataFrame({"time": times, **{name: column for name, column in columns.items() if name != "time"}})


def log_frame(path: Path | str) -> "pandas.DataFrame":
    """Every record of an MLPerf log: ``line``, ``time`` (UTC), ``key``, ``value`` and the fields of its metadata."""
    import pandas

    log = read_log(Path(path))
    times = pandas.to_datetime([event.time_ms for event in log.events], unit="ms", utc=True, errors="coerce")
    own = {"line": [event.line for event in log.events], "time": times, "key": [event.key for event in log.events]}
    values = _column([event.value for event in log.events])
    names = dict.fromkeys(name for event in log.events for name in event.metadata if name not in (*own, "value"))
    fields = {name: _column([event.metadata.get(name) for event in log.events]) for name in names}
    return pandas.DataFrame({**own, "value": values, **fields})


def evaluations_frame(path: Path | str) -> "pandas.DataFrame":
    """Every evaluation of a run, given its log or folder: ``tokens``, ``log_perplexity``, ``minutes`` since run_start,
    ``seconds`` it took where that is logged. Raises InputError where there is no log."""
    import pandas

    summary = read_recorded_run(Path(path)).summary
    start = summary.run_start_ms
    rows = [
        (one.tokens, one.log_perplexity, None if start is None else (one.time_ms - start) / 60_000, one.seconds)
        for one in summary.evaluations
    ]
    return pandas.DataFrame(rows, columns=["tokens", "log_perplexity", "minutes", "seconds"], dtype="Float64")


def published_frame() -> "pandas.DataFrame":
    """The published GPT-3 results of rounds 3.0 to 4.1: a row per system (``row`` is "system") and per log ("run")."""
    import pandas

    texts = {"round": "string", "evaluation_tokens": "string", "evaluation_values": "string"}
    return pandas.read_csv(PUBLISHED_RUNS, dtype=texts)


def _column(values: list[Any]) -> "pandas.Series[Any]":
    """Numbers where all that is there are numbers, else texts; missing where there is nothing."""
    import pandas

    present = [value for value in values if value is not None]
    if present and all(as_number(value) is not None for value in present):
        return pandas.Series([as_number(value) for value in values], dtype="Float64")
    if present and all(isinstance(value, bool) for value in present):
        return pandas.Series(values, dtype="boolean")
    return pandas.Series([None if value is None else _text(value) for value in values], dtype="string")


def _text(value: Any) -> str:
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
