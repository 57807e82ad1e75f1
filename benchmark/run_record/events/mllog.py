"""Read MLPerf result files as data: tolerantly, with line numbers, and with a list of unreadable places.

It reads what the official tools read (docs/facts/mlperf_review.md 2.3): of every line that holds ``:::MLLOG `` the JSON
after the last of these tokens. Where those tools stop with a traceback, or silently leave something out, there is a
:class:`Problem` here, and the rest of the file is read all the same. Nothing in a file is executed.
"""

import io
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from foundation.plain_text import shortened
from foundation.regular_files import UnfitFile, read_regular

TOKEN = ":::MLLOG "
BARE_TOKEN = ":::MLLOG"
MOST_BYTES = 256 << 20
"""The largest published GPT-3 log has 5 MB; a file beyond this is not read into memory."""
MOST_RECORD_CHARACTERS = 1 << 20
"""The largest published record has under 1,000."""
MOST_CHARACTERS = 64 << 20
"""Largest number of characters in all records of a file."""
MOST_VALUES = 2_000_000
"""Largest number of values in all records of a file, each of which takes some hundred bytes of memory; published logs
have at most 300,000."""
MOST_NAMES = 8
"""Largest number of names that are listed in one problem."""
MOST_SHOWN = 80
"""Largest number of characters of a line that a problem quotes."""
MOST_UNREADABLE = 10_000
"""Number of problems after which the rest of a file is not read."""
MOST_PROBLEMS = 200
"""Largest number of problems kept per file: a file of another kind would give one per line."""
REQUIRED = ("key", "value", "time_ms", "metadata")
"""Fields without which the official checker stops with a KeyError."""
KINDS_BY_BEGIN = {
    b"\x1f\x8b": "packed by gzip", b"PK\x03\x04": "a zip archive",
    b"\xff\xfe": "UTF-16, not UTF-8", b"\xfe\xff": "UTF-16, not UTF-8",
}  # fmt: skip
"""First bytes of files in which no record can be read, and what they are."""
MOST_EXACT = 1 << 53
"""Largest whole number up to which a float tells whole numbers apart."""
EVENT_TYPES = ("POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END")


@dataclass(frozen=True)
class Problem:
    """A place in a file that cannot be read as it should."""

    line: int | None
    """Line, counted from 1; None for the whole file."""
    observed: str
    expected: str
    fatal: bool = True
    """True if the official tools fail, crash or lose a record here."""


@dataclass(frozen=True)
class LogEvent:
    """One record of a result file."""

    line: int
    """Line, counted from 1."""
    key: str
    value: Any
    time_ms: int
    """Milliseconds since the epoch."""
    event_type: str
    """POINT_IN_TIME, INTERVAL_START or INTERVAL_END in a valid record."""
    metadata: Mapping[str, Any]

    @property
    def number(self) -> float | None:
        """Return the value, if it is a finite number."""
        return as_number(self.value)


@dataclass(frozen=True)
class ResultLog:
    """A result file."""

    path: Path
    size_bytes: int
    num_lines: int
    """Number of physical lines, including those of other programs."""
    events: Sequence[LogEvent]
    """Records in the order of the file."""
    problems: Sequence[Problem]

    @cached_property
    def by_key(self) -> Mapping[str, Sequence[LogEvent]]:
        grouped: dict[str, list[LogEvent]] = {}
        for event in self.events:
            grouped.setdefault(event.key, []).append(event)
        return grouped

    def all(self, key: str) -> Sequence[LogEvent]:
        return self.by_key.get(key, ())

    def first(self, key: str) -> LogEvent | None:
        return next(iter(self.all(key)), None)

    def last(self, key: str) -> LogEvent | None:
        return self.all(key)[-1] if self.all(key) else None

    def value(self, key: str) -> Any:
        """Return the value of the first record of ``key``; None if there is none."""
        event = self.first(key)
        return None if event is None else event.value

    def number(self, key: str) -> float | None:
        """Return the value of the first record of ``key``; None if there is none, or if it is no finite number."""
        event = self.first(key)
        return None if event is None else event.number

    def text(self, key: str) -> str | None:
        """Return the value of the first record of ``key``; None if there is none, or if it is no string."""
        value = self.value(key)
        return value if isinstance(value, str) else None


def as_number(value: Any) -> float | None:
    """Return ``value`` if it is a finite JSON number. An integer stays one, unless a float could not tell it from the
    next."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and abs(value) <= MOST_EXACT:
        return value
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer beyond a float's range
        return None


class UnfitRecord(ValueError):
    """Error for a line with the token but no valid record: the content found, and the content expected."""


def read_log(path: Path) -> ResultLog:
    """Read a result file. The answer is always a log, perhaps an empty one with problems."""
    try:
        return parse_log(path, read_regular(path, MOST_BYTES))
    except OSError as error:
        observed = str(error) if isinstance(error, UnfitFile) else (error.strerror or str(error))
        expected = f"a regular file that can be read, of at most {MOST_BYTES:,} bytes"
        return ResultLog(path, 0, 0, (), (Problem(None, observed, expected),))


def parse_log(path: Path, content: bytes) -> ResultLog:
    """Return the log in ``content``; ``path`` is for messages."""
    size, content = len(content), with_plain_newlines(content)
    events: list[LogEvent] = []
    problems: list[Problem] = []
    repeated: list[str] = []
    decode = json.JSONDecoder(object_pairs_hook=lambda pairs: _object(pairs, repeated)).decode
    characters = values = 0
    for number, line in _lines_with(BARE_TOKEN.encode(), content):
        characters += len(line)
        values += line.count(",") + line.count("[")
        if characters > MOST_CHARACTERS or values > MOST_VALUES:
            observed = (
                f"more than {MOST_VALUES:,} values, or {MOST_CHARACTERS:,} characters of records, up to this line"
            )
            problems.insert(
                0, Problem(number, observed, "a log of 5 MB at most, by rank 0 only: the rest was not read")
            )
            break
        try:
            events.append(_read_line(number, line, decode, repeated, problems))
        except UnfitRecord as error:
            problems.append(Problem(number, *error.args))
        if len(problems) > MOST_UNREADABLE:
            break  # said below, as one of the lines left out
    if not events:
        problems.append(Problem(None, f"no MLLOG record{_kind_of(content)}", "lines that begin with ':::MLLOG '"))
    left_out = len(problems) - MOST_PROBLEMS
    if left_out > 0:
        fatal = any(problem.fatal for problem in problems[MOST_PROBLEMS:])
        observed = f"{left_out} more lines that {'cannot be read' if fatal else 'are not as mllog writes them'}"
        problems[MOST_PROBLEMS:] = [Problem(None, observed, "records", fatal)]
    lines = content.count(b"\n") + (bool(content) and not content.endswith(b"\n"))
    return ResultLog(path, size, lines, tuple(events), tuple(problems))


def _kind_of(content: bytes) -> str:
    """Return words about content without records: empty, packed or in another encoding; no words for other content."""
    if not content:
        return ": an empty file"
    return next((f": {kind}" for begin, kind in KINDS_BY_BEGIN.items() if content.startswith(begin)), "")


def with_plain_newlines(content: bytes) -> bytes:
    """Return the content with universal newlines, as the official tools read it."""
    return content.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in content else content


def _lines_with(token: bytes, content: bytes) -> Iterator[tuple[int, str]]:
    """Yield number, from 1, and text of the lines that hold ``token``; all other lines are only counted.

    The text is read as latin-1, as the official tools do: every byte sequence is text then.
    """
    number, counted = 1, 0
    position = content.find(token)
    while position >= 0:
        start = content.rfind(b"\n", counted, position) + 1 or counted
        end = content.find(b"\n", position)
        end = len(content) if end < 0 else end
        number += content.count(b"\n", counted, start)
        yield number, content[start:end].decode("latin-1")
        counted = start
        position = content.find(token, end)


def lines_by_number(content: bytes, numbers: Collection[int]) -> dict[int, str]:
    """Return the text of the lines with these numbers, as far as the content has them."""
    lines = enumerate(io.BytesIO(with_plain_newlines(content)), 1)
    return {number: line.rstrip(b"\n").decode("latin-1") for number, line in lines if number in numbers}


def _read_line(
    number: int, line: str, decode: Callable[[str], Any], repeated: list[str], problems: list[Problem]
) -> LogEvent:
    """Return the record of a line that holds the token; its oddities go to ``problems``.

    ``decode`` writes the names that a record has twice to ``repeated``. Raises UnfitRecord if the line has no valid
    record.
    """
    line_start, token, record = line.rpartition(TOKEN)
    record = record.strip()
    if not token:
        raise UnfitRecord(shortened(line, MOST_SHOWN), "':::MLLOG ' with a space before the JSON")
    if BARE_TOKEN in line_start:
        problems.append(Problem(number, "two records on one line", "one: the official tools read only the last"))
    if len(record) > MOST_RECORD_CHARACTERS:
        raise UnfitRecord(f"{len(record):,} characters", f"a record of at most {MOST_RECORD_CHARACTERS:,} characters")
    repeated.clear()
    try:
        fields = decode(record)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise UnfitRecord(f"{shortened(record, MOST_SHOWN)} ({why})", "one JSON object after the token") from error
    if repeated:
        names = shortened(", ".join(repr(name) for name in repeated[:MOST_NAMES]), MOST_SHOWN)
        plural = "s" * (len(repeated) > 1)
        problems.append(Problem(number, f"field{plural} {names} twice in a record", "every field once", fatal=False))
    if not isinstance(fields, dict):
        raise UnfitRecord(shortened(record, MOST_SHOWN), "a JSON object")
    missing = [name for name in REQUIRED if name not in fields]
    if missing:
        raise UnfitRecord(f"no {', '.join(missing)}", f"a record with {', '.join(REQUIRED)}")
    time_ms, kind = as_number(fields["time_ms"]), fields.get("event_type")
    for name, fits, expected in (
        ("key", isinstance(fields["key"], str), "a string"),
        ("time_ms", time_ms is not None and abs(time_ms) <= MOST_EXACT, "milliseconds since the epoch"),
        ("metadata", isinstance(fields["metadata"], dict), "an object"),
    ):
        if not fits:
            raise UnfitRecord(f"{name} {shortened(repr(fields[name]), MOST_SHOWN)}", f"{name}: {expected}")
    if kind not in EVENT_TYPES:
        observed = f"event_type {shortened(repr(kind), MOST_SHOWN)}"
        problems.append(Problem(number, observed, f"event_type {', '.join(EVENT_TYPES)}", fatal=False))
    return LogEvent(number, fields["key"], fields["value"], int(time_ms or 0), str(kind), fields["metadata"])


def _object(pairs: Sequence[tuple[str, Any]], repeated: list[str]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        repeated += sorted(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
    return content
