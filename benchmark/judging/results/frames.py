"""Return results as pandas DataFrames: events, records of a log, evaluations, runs, systems, the published results.

``published_runs.csv`` holds the table of runs of rounds 3.0 to 4.1, made from the rounds' repositories
(mlcommons/training_results_v3.0 63e326c4, v3.1 d06288b2, v4.0 6fe95437, v4.1 b87b9e39) by
``python -m benchmark.judging.results.write_published``.
"""

import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import pandas

from benchmark.judging.results.judged import GPT3, Judged
from benchmark.judging.results.recorded_run import read_recorded_run
from benchmark.judging.results.run_summary import RunSummary
from benchmark.judging.results.score import Score, run_score, score
from benchmark.judging.results.subjects import ResultSet
from benchmark.run_record.events.mllog import MOST_EXACT, ResultLog, as_number, read_log
from benchmark.run_record.events.recorded_events import read_events
from benchmark.run_record.file_names import EVENTS_FILE
from foundation.errors import InputError
from foundation.plain_text import printable, shortened

SYSTEM_KEYS = ("round", "package", "system_folder")
ROWS_AT_ONCE = 5000
"""Records that are Python objects at a time while a table is made."""
MOST_CHARACTERS = 32_000
"""Largest number of characters in a cell; Excel takes 32,767."""
FORMULA = re.compile(r"(^\W*?|[,;|\"'`]\s*)(?=[=+\-@\uFF1D\uFF0B\uFF0D\uFF20])")
"""Position before a character with which a spreadsheet begins a formula: at the start of a text, or where a spreadsheet
may cut the text."""
TIME = "datetime64[ms, UTC]"
RUN_TYPES = {
    **dict.fromkeys(("round", "package", "system_folder", "file", "submitter", "division", "availability"), "string"),
    "accelerator_model_name": "string",
    "accelerators_count": "Int64",
    "framework": "string",
    "submission_benchmark": "string",
    "seed": "Int64",
    "submission_org": "string",
    "submission_platform": "string",
    "global_batch_size": "Int64",
    "run_started": TIME,
    "status": "string",
    **dict.fromkeys(("minutes", "init_s", "tokens"), "Float64"),
    "evaluations": "Int64",
    **dict.fromkeys(("evaluation_tokens", "evaluation_values", "evaluation_ms"), "string"),
    **dict.fromkeys(("last_log_perplexity", "tokens_per_s_per_accelerator", "mfu"), "Float64"),
    "peak_format": "string",
    "restarts": "Int64",
    **dict.fromkeys(("measured_minutes", "scaling_factor", "score_minutes"), "Float64"),
    "convergence": "string",
}
"""Pandas type of each column; a value of another kind counts as missing."""


def events_frame(path: Path | str) -> pandas.DataFrame:
    """Return the ``events.jsonl`` of a run, from the file or its run folder: a row per event, in their order.

    Columns: ``time`` (UTC), ``key``, ``value``, and a column for each field of any event. Whole numbers and fractions
    are numbers, objects and lists are JSON texts. Raises InputError if there is no such file.
    """
    path = Path(path)
    file = path / EVENTS_FILE if path.is_dir() else path
    if not file.is_file():
        raise InputError(f"{file}: no such file; give a run folder, or its events.jsonl")
    events = read_events(file)
    records = ({**event.fields, "key": event.key, "value": event.value} for event in events)
    return _timed(("time", "key", "value"), events.times_ms, records)


def log_frame(path: Path | str) -> pandas.DataFrame:
    """Return every record of an MLPerf log: ``line``, ``time`` (UTC), ``key``, ``value`` and its metadata's fields."""
    events = read_log(Path(path)).events
    records = ({**event.metadata, "line": event.line, "key": event.key, "value": event.value} for event in events)
    return _timed(("line", "time", "key", "value"), [event.time_ms for event in events], records)


def evaluations_frame(path: Path | str) -> pandas.DataFrame:
    """Return every evaluation of a run, from its log or folder: ``tokens``, ``log_perplexity``, ``minutes`` since
    run_start, and its ``seconds`` if they are logged. Raises InputError without a log."""
    summary = read_recorded_run(Path(path)).summary
    start = summary.run_start_ms
    rows = [
        (
            evaluation.tokens,
            evaluation.log_perplexity,
            None if start is None else (evaluation.time_ms - start) / 60_000,
            evaluation.seconds,
        )
        for evaluation in summary.evaluations
    ]
    return pandas.DataFrame(rows, columns=["tokens", "log_perplexity", "minutes", "seconds"], dtype="Float64")


def runs_frame(sets: Iterable[ResultSet]) -> pandas.DataFrame:
    """Return a row per run, in the columns of :data:`RUN_TYPES`; the index numbers the sets.

    A set without any result file has one row, with the facts about its system.
    """
    records = [(number, record) for number, results in enumerate(sets) for record in run_records(results)]
    return frame_of([record for _, record in records], RUN_TYPES, [number for number, _ in records])


def run_records(results: ResultSet) -> list[dict[str, Any]]:
    """Return the values of the columns for each run of a set; those of an empty log for a set without files."""
    runs = results.runs or (RunSummary(ResultLog(results.folder or Path(), 0, 0, (), ())),)
    system = score(results)
    return [_run_record(results, system, run) for run in runs]


def _run_record(results: ResultSet, system: Score, run: RunSummary) -> dict[str, Any]:
    """Return the row of a run; ``system`` is the score of the set that it belongs to."""
    described = {} if results.system is None else results.system.content
    scored, start, speed, mfu = run_score(run), run.run_start_ms, None, None
    if run.tokens_per_s is not None and system.accelerators:
        speed = run.tokens_per_s / system.accelerators
    if speed is not None and system.peak_tflops:
        mfu = speed * results.judged.flops_per_token / 1e12 / system.peak_tflops
    return {
        "round": results.ruleset.rpartition(".")[0],
        "package": results.package,
        "system_folder": results.name,
        "file": run.log.path.name,
        "submitter": described.get("submitter") or run.org,
        "division": described.get("division") or run.division,
        "availability": described.get("status") or run.log.text("submission_status"),
        "accelerator_model_name": system.accelerator,
        "accelerators_count": system.accelerators,
        "framework": described.get("framework"),
        "submission_benchmark": run.benchmark,
        "seed": scored.seed,
        "submission_org": run.org,
        "submission_platform": run.platform,
        "global_batch_size": run.global_batch_size,
        "run_started": start,
        "status": run.status,
        "minutes": run.minutes,
        "init_s": run.init_s,
        "tokens": run.trained_tokens,
        "evaluations": scored.evaluations,
        "evaluation_tokens": _joined([evaluation.tokens for evaluation in run.evaluations]),
        "evaluation_values": _joined([evaluation.log_perplexity for evaluation in run.evaluations]),
        "evaluation_ms": _joined([evaluation.time_ms - (start or 0) for evaluation in run.evaluations]),
        "last_log_perplexity": scored.last_log_perplexity,
        "tokens_per_s_per_accelerator": speed,
        "mfu": mfu,
        "peak_format": system.peak_format if run.log.events else None,
        "restarts": scored.restarts,
        "measured_minutes": system.measured_minutes,
        "scaling_factor": system.factor,
        "score_minutes": system.minutes,
        "convergence": results.convergence.standing,
    }


def _joined(values: Sequence[float | None]) -> str | None:
    """Return numbers separated by spaces, with a dash for a missing one."""
    return " ".join("-" if value is None else f"{value:.10g}" for value in values) or None


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


def published_frame(judged: Judged = GPT3) -> pandas.DataFrame:
    """Return the published runs of a benchmark in the same columns: of GPT-3 the 126 of rounds 3.0 to 4.1, of a
    benchmark without a table none. The index numbers the systems."""
    if judged.published is None:
        return frame_of([], RUN_TYPES, [])
    types: Any = {name: "string" if dtype == TIME else dtype for name, dtype in RUN_TYPES.items()}
    frame = pandas.read_csv(judged.published, dtype=types)
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
        cells = [None if text is None else shortened(text, MOST_CHARACTERS) for text in texts]
        return pandas.Series(cells, dtype="string")
    numbers = [as_number(value) for value in values]
    if dtype == "Int64":
        is_whole = (number is not None and number == int(number) and abs(number) <= MOST_EXACT for number in numbers)
        numbers = [int(number or 0) if fits else None for number, fits in zip(numbers, is_whole, strict=True)]
    return pandas.Series(numbers, dtype=dtype)


def _timed(
    first_columns: Sequence[str], times_ms: Sequence[int], records: Iterable[Mapping[str, Any]]
) -> pandas.DataFrame:
    """Return a row per record: the columns ``first_columns``, ``time`` among them, then all fields.

    Few records are objects of Python at a time: a field of a row takes some fifty times as many bytes there.
    """
    empty = dict.fromkeys(first_columns)
    rows = ({**empty, **{name: _cell_value(value) for name, value in record.items()}} for record in records)
    parts = []
    while part := list(itertools.islice(rows, ROWS_AT_ONCE)):
        parts.append(pandas.DataFrame(part).convert_dtypes())
    times = pandas.to_datetime(list(times_ms), unit="ms", utc=True, errors="coerce")
    frame = pandas.concat(parts, ignore_index=True) if parts else pandas.DataFrame(columns=list(first_columns))
    without_value = [name for name in frame if parts and frame[name].isna().all()]
    return frame.convert_dtypes().astype(dict.fromkeys(without_value, "Int64")).assign(time=times)


def _cell_value(value: Any) -> Any:
    """Return a value for a table: texts are made printable, objects and lists become JSON texts."""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
    return printable(text) if isinstance(text, str) else text
