"""Write the copy of a log that the official tools read: every record anew, with values that none of them can misuse.

The compliance checker makes the name of a file of rules, whose code it evaluates, from ``submission_division`` and
``submission_benchmark`` (docs/notes/official_tools.md). A copy holds those values from closed lists only; a log with
another value is not copied, and the tools do not run on it. All else is data to the tools; texts, nesting and lengths
are bounded, since some tools take time that grows with the square of a line.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mlperf_logging.benchmark_meta import get_result_file_counts

from benchmark.judging.results.judged import JUDGED
from benchmark.run_record.events.mllog import TOKEN, with_plain_newlines

BENCHMARKS = frozenset((*get_result_file_counts("training"), *JUDGED))
CLOSED_LISTS = {"submission_division": frozenset(("closed", "open")), "submission_benchmark": BENCHMARKS}
"""Values from which official tools form paths, by their key."""
MOST_TEXT = 1_000
"""Largest number of characters of a name or text in a copy; published logs have at most 120."""
MOST_ENTRIES = 1_000
"""Largest number of entries of an object or array in a copy."""
DEEPEST = 16
MOST_LINE = 8_192
"""Largest number of characters of a record in a copy; published records have under 1,000."""
UNREADABLE = TOKEN + "{"
"""Line for a record that is no JSON: the tools find their own words for it."""
MOST_SHOWN = 60


@dataclass(frozen=True)
class LogCopy:
    """A log as the official tools get it."""

    content: bytes
    notes: tuple[str, ...] = ()
    """Changes that the records needed."""
    refusal: str = ""
    """Line, and reason why the tools get no copy."""


class RefusedRecordError(ValueError):
    """A record with a value that no tool may see."""


def copied_log(content: bytes) -> LogCopy:
    """Return the records of a log, each written anew, without the lines of other programs."""
    lines, changes = [], Counter[str]()
    for number, text in _records(content):
        try:
            lines.append(_copied_record(text, changes))
        except RefusedRecordError as error:
            return LogCopy(b"", refusal=f"{number}: {error}")
    notes = tuple(f"the tools got {words} ({count})" for words, count in changes.items())
    return LogCopy("".join(f"{line}\n" for line in lines).encode("ascii"), notes)


def _records(content: bytes) -> Iterator[tuple[int, str]]:
    """Yield line and text of each record, as the tools read it: what follows the last token of a line."""
    token = TOKEN.encode()
    for number, line in enumerate(with_plain_newlines(content).split(b"\n"), 1):
        _, separator, record = line.rpartition(token)
        if separator:
            yield number, record.decode("latin-1").strip()


def _copied_record(text: str, changes: Counter[str]) -> str:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return UNREADABLE
    if isinstance(record, dict):
        allowed = CLOSED_LISTS.get(str(record.get("key")))
        value = record.get("value")
        if allowed is not None and not (isinstance(value, str) and value in allowed):
            raise RefusedRecordError(f"{record['key']} {repr(value)[:MOST_SHOWN]} is none of {_listed(allowed)}")
    line = json.dumps(bounded(record, changes))
    if len(line) > MOST_LINE:
        changes[f"records of more than {MOST_LINE:,} characters without value and metadata"] += 1
        line = json.dumps(_emptied(bounded(record, changes)))
    return f"{TOKEN}{line}"


def bounded(value: Any, changes: Counter[str], most_text: int = MOST_TEXT, depth: int = 0) -> Any:
    """Return a JSON value with texts, entries and nesting cut to the bounds of a copy; cuts are counted."""
    if isinstance(value, str):
        if len(value) > most_text:
            changes[f"texts cut to {most_text:,} characters"] += 1
        return value[:most_text]
    if not isinstance(value, dict | list):
        return value
    if depth == DEEPEST or len(value) > MOST_ENTRIES:
        changes[f"objects cut to {MOST_ENTRIES:,} entries and {DEEPEST} levels"] += 1
    if depth == DEEPEST:
        return None
    if isinstance(value, list):
        return [bounded(entry, changes, most_text, depth + 1) for entry in value[:MOST_ENTRIES]]
    entries = list(value.items())[:MOST_ENTRIES]
    return {name[:MOST_TEXT]: bounded(entry, changes, most_text, depth + 1) for name, entry in entries}


def _emptied(record: Any) -> Any:
    if not isinstance(record, dict):
        return None
    fields = {name: record[name] for name in ("namespace", "time_ms", "event_type", "key") if name in record}
    return {name: value for name, value in fields.items() if len(json.dumps(value)) <= MOST_TEXT * 2} | {
        "value": None,
        "metadata": {},
    }


def _listed(allowed: frozenset[str]) -> str:
    words = sorted(allowed)
    return " and ".join(words) if len(words) < 3 else f"the {len(words)} benchmarks of the official tools"
