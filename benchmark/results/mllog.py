"""MLPerf result files as data: a tolerant reader that keeps line numbers and says what it could not read.

It reads what the official tools read (docs/facts/mlperf_review.md 2.3): of every line that holds ``:::MLLOG `` the JSON
after the last of these tokens. Where those tools stop with a traceback, or silently leave something out, there is a
:class:`Problem` here, and the rest of the file is read all the same. Nothing in a file is executed.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmark.results.printable import shortened
from benchmark.results.result_log import EVENT_TYPES, MOST_EXACT, LogEvent, Problem, ResultLog, as_number
from stage.regular_files import UnfitFile, read_regular

TOKEN = ":::MLLOG "
BARE_TOKEN = ":::MLLOG"
MOST_BYTES = 256 << 20
"""The largest published GPT-3 log has 5 MB; a file beyond this is not read into memory."""
MOST_RECORD_CHARACTERS = 1 << 20
"""The largest published record has under 1,000."""
MOST_CHARACTERS = 64 << 20
"""Of all records of a file."""
MOST_VALUES = 2_000_000
"""In all records of a file, each of which takes some hundred bytes of memory; published logs have at most 300,000."""
PIECE = 1 << 20
MOST_NAMES = 8
"""Of the names that are listed in one problem."""
MOST_SHOWN = 80
"""Characters of a line that a problem quotes."""
MOST_UNREADABLE = 10_000
"""Problems after which the rest of a file is not read."""
MOST_PROBLEMS = 200
"""Kept per file: a file of another kind would give one per line."""
REQUIRED = ("key", "value", "time_ms", "metadata")
"""Fields without which the official checker stops with a KeyError."""


def read_log(path: Path) -> ResultLog:
    """Read a result file. Whatever is there, the answer is a log, perhaps an empty one with problems."""
    try:
        return parse_log(path, read_regular(path, MOST_BYTES))
    except OSError as error:
        found = str(error) if isinstance(error, UnfitFile) else (error.strerror or str(error))
        expected = f"a regular file that can be read, of at most {MOST_BYTES:,} bytes"
        mend = "give the result_*.txt that the run wrote, from rank 0 only and without other programs' output"
        return ResultLog(path, 0, 0, (), (Problem(None, found, expected, mend),))


def parse_log(path: Path, content: bytes) -> ResultLog:
    """The log that ``content`` is; ``path`` is for messages."""
    size, content = len(content), with_plain_newlines(content)
    events: list[LogEvent] = []
    problems: list[Problem] = []
    characters = values = 0
    told = False
    for number, line in _lines_with(BARE_TOKEN.encode(), content):
        characters += len(line)
        values += line.count(",") + line.count("[")
        if characters > MOST_CHARACTERS or values > MOST_VALUES:
            found = f"more than {MOST_VALUES:,} values, or {MOST_CHARACTERS:,} characters of records, up to this line"
            mend = "log from rank 0 only: the rest of the file was not read"
            problems.insert(0, Problem(number, found, "a log like the published ones, of 5 MB at most", mend))
            break
        event, found_here = _read_line(number, line)
        if event is not None:
            events.append(event)
        if told and found_here:
            found_here = [problem for problem in found_here if not problem.harmless]
        told = told or any(problem.harmless for problem in found_here)
        problems += found_here
        if len(problems) > MOST_UNREADABLE:
            break  # said below, as one of the lines left out
    if not events:
        expected = "lines that begin with ':::MLLOG '"
        problems.append(Problem(None, "no MLLOG record", expected, "give the result_*.txt that the run wrote"))
    left_out = len(problems) - MOST_PROBLEMS
    if left_out > 0:
        fatal = any(problem.fatal for problem in problems[MOST_PROBLEMS:])
        problems = problems[:MOST_PROBLEMS]
        found = f"{left_out} more lines that {'cannot be read' if fatal else 'are not as mllog writes them'}"
        problems.append(Problem(None, found, "records", "see the first ones", fatal))
    lines = content.count(b"\n") + (bool(content) and not content.endswith(b"\n"))
    return ResultLog(path, size, lines, tuple(events), tuple(problems))


def with_plain_newlines(content: bytes) -> bytes:
    """Universal newlines, as the official tools read."""
    return content.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in content else content


def _lines_with(token: bytes, content: bytes) -> Iterator[tuple[int, str]]:
    """Numbers, from 1, and text of the lines that hold ``token``: others are only counted, however many they are.

    The text is read as latin-1, as the official tools do: every byte sequence is text then.
    """
    number, counted = 1, 0
    place = content.find(token)
    while place >= 0:
        start = content.rfind(b"\n", counted, place) + 1 or counted
        end = content.find(b"\n", place)
        end = len(content) if end < 0 else end
        number += content.count(b"\n", counted, start)
        yield number, content[start:end].decode("latin-1")
        counted = start
        place = content.find(token, end)


def lines_by_number(content: bytes, numbers: Collection[int]) -> dict[int, str]:
    """The text of the lines of these numbers, as far as they are there, for files of any number of lines."""
    content = with_plain_newlines(content)
    found: dict[int, str] = {}
    before = start = 0
    while start < len(content) and len(found) < len(numbers):
        end = content.find(b"\n", start + PIECE) + 1 or len(content)  # whole lines
        block = content[start:end]
        here = block.count(b"\n") + (not block.endswith(b"\n"))
        wanted = [number for number in numbers if before < number <= before + here]
        if wanted:
            lines = block.split(b"\n")
            found |= {number: lines[number - before - 1].decode("latin-1") for number in wanted}
        before, start = before + here, end
        if before >= max(numbers):
            break
    return found


def _read_line(number: int, line: str) -> tuple[LogEvent | None, list[Problem]]:
    """The record of a line that holds the token, and what is wrong with it."""
    problems: list[Problem] = []
    before, token, record = line.rpartition(TOKEN)
    if not token:
        mend = "write it with mllog, which puts a space after the token"
        return None, [Problem(number, shortened(line, MOST_SHOWN), "':::MLLOG ' with a space before the JSON", mend)]
    if BARE_TOKEN in before:
        expected = "one record per line: the official tools read only the last"
        problems.append(Problem(number, "two records on one line", expected, "log from one process, a line at a time"))
    record = record.strip()
    if len(record) > MOST_RECORD_CHARACTERS:
        found, expected = f"{len(record):,} characters", f"a record of at most {MOST_RECORD_CHARACTERS:,} characters"
        return None, [*problems, Problem(number, found, expected, "log no arrays")]
    repeated: list[str] = []
    try:
        fields = json.loads(record, object_pairs_hook=lambda pairs: _object(pairs, repeated))
    except (ValueError, RecursionError) as error:
        found = f"{shortened(record, MOST_SHOWN)} ({_why(error)})"
        mend = "the line is cut or mixed with other output: keep stdout out of the file, and flush at each event"
        return None, [*problems, Problem(number, found, "one JSON object after the token", mend)]
    if repeated:
        names = shortened(", ".join(repr(name) for name in repeated[:MOST_NAMES]), MOST_SHOWN)
        found = f"field {names} twice in a record" if len(repeated) == 1 else f"fields {names} twice in a record"
        problems.append(Problem(number, found, "every field once", "write each field once", fatal=False))
    event = _as_event(number, record, fields, problems)
    return event, problems


def _as_event(number: int, record: str, fields: Any, problems: list[Problem]) -> LogEvent | None:
    if not isinstance(fields, dict):
        problems.append(Problem(number, shortened(record, MOST_SHOWN), "a JSON object", "write it with mllog"))
        return None
    missing = [name for name in REQUIRED if name not in fields]
    if missing:
        expected = f"a record with {', '.join(REQUIRED)}"
        problems.append(Problem(number, f"no {', '.join(missing)}", expected, "write it with mllog"))
        return None
    wrong = list(_wrong_fields(fields))
    for name, expected in wrong:
        found = f"{name} {shortened(repr(fields[name]), MOST_SHOWN)}"
        problems.append(Problem(number, found, f"{name}: {expected}", "write it with mllog"))
    if wrong:
        return None
    kind = fields.get("event_type")
    if kind not in EVENT_TYPES:
        expected = f"event_type {', '.join(EVENT_TYPES)}"
        mend = "write it with mllog's start, end or event"
        problems.append(Problem(number, f"event_type {shortened(repr(kind), MOST_SHOWN)}", expected, mend, fatal=False))
    if fields["time_ms"] != int(fields["time_ms"]):
        found = f"time_ms {fields['time_ms']!r}, with a fraction"
        mend = "log whole milliseconds, as mllog does; the official tools accept it"
        problems.append(Problem(number, found, "a whole number of milliseconds", mend, fatal=False, harmless=True))
    time_ms = int(fields["time_ms"])
    return LogEvent(number, fields["key"], fields["value"], time_ms, str(kind), fields["metadata"], record)


def _wrong_fields(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Fields of another type than the official tools take, and what they should be."""
    if not isinstance(fields["key"], str):
        yield "key", "a string"
    time = as_number(fields["time_ms"])
    if time is None or abs(time) > MOST_EXACT:
        yield "time_ms", "milliseconds since the epoch, a whole number"
    if not isinstance(fields["metadata"], dict):
        yield "metadata", "an object"


def _object(pairs: Sequence[tuple[str, Any]], repeated: list[str]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        repeated += sorted(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
    return content


def _why(error: ValueError | RecursionError) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)
