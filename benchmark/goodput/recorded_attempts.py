"""The attempts at a run: what their folders and the run's events say of each.

All of it is data of files that may be damaged: what is not of its type counts as not there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmark.goodput.steady_clock import as_milliseconds
from benchmark.results.printable import printable
from benchmark.results.recorded_events import RecordedEvent
from benchmark.supervision.attempt_folder import all_attempts, read_end, read_start
from benchmark.supervision.incidents import first_cause, read_incidents

OPENERS = ("attempt", "environment")
"""Events with which the processes of an attempt begin; runs of before attempts were counted have the second alone."""
TRAINING = ("ready", "run_start", "restart", "step")
"""Events after which an attempt is no longer beginning."""
BEFORE_RESTART = ("inputs", "environment", "restart")
"""Events of an attempt that goes on, before it does."""


@dataclass(frozen=True)
class Cause:
    """The first incident of an attempt."""

    time_ms: int | None
    kind: str
    rank: int | None
    host: str
    phase: str
    message: str


@dataclass(frozen=True)
class RecordedAttempt:
    """One attempt. Times are milliseconds since the epoch as the clock had them, None where nobody wrote them down;
    texts are printable."""

    name: str
    events: range
    """Places of its events in the run's."""
    job: str | None = None
    submitted_ms: int | None = None
    launched_ms: int | None = None
    started_ms: int | None = None
    hosts: tuple[str, ...] = ()
    """By rank; empty where they are not known."""
    ended_ms: int | None = None
    status: int | None = None
    action: str = ""
    reason: str = ""
    cause: Cause | None = None


def recorded_attempts(run_dir: Path, events: Sequence[RecordedEvent]) -> list[RecordedAttempt]:
    """Those of a run, in their order. One may have a folder alone, if it ended before it opened the run's log, or
    events alone, if no launcher kept folders."""
    sections = [(section, _note(section, events)) for section in _sections(events)]
    noted = {_text(note.get("attempt")) for _, note in sections}
    left = [_attempt(folder.name, range(0), {}, folder) for folder in all_attempts(run_dir)]
    found: list[RecordedAttempt] = []
    for section, note in sections:
        name, opened_ms = _text(note.get("attempt")), events[section.start].time_ms
        while left and (name in {one.name for one in left[1:]} or _is_before(left[0], opened_ms)):
            found.append(replace(left.pop(0), events=range(section.start, section.start)))
        if left and (left[0].name == name or (not name and left[0].name not in noted)):
            found.append(replace(left.pop(0), events=section))
        else:
            found.append(_attempt(name or str(len(found) + 1), section, note, None))
    return found + [replace(one, events=range(len(events), len(events))) for one in left]


def _is_before(attempt: RecordedAttempt, opened_ms: int) -> bool:
    """Whether it ended before it opened the run's log, which another opened then."""
    return attempt.started_ms is None and attempt.ended_ms is not None and attempt.ended_ms < opened_ms


def _sections(events: Sequence[RecordedEvent]) -> Iterator[range]:
    """The events of each attempt."""
    first, openers, training = 0, set[str](), False
    for place, event in enumerate(events):
        if event.key in OPENERS:
            if training or event.key in openers:
                yield range(first, place)
                first, openers, training = place, set(), False
            openers.add(event.key)
        elif event.key == "restart" and training and not openers:
            split = place
            while split - 1 > first and events[split - 1].key in BEFORE_RESTART:
                split -= 1
            if split > first:
                yield range(first, split)
            first = split
        training = training or event.key in TRAINING
    if events:
        yield range(first, len(events))


def _note(section: range, events: Sequence[RecordedEvent]) -> Mapping[str, object]:
    """What rank 0 noted of the attempt when it began (the fields of AttemptStart); empty where it did not."""
    for place in section:
        event = events[place]
        if event.key == "attempt":
            return event.value if isinstance(event.value, dict) else event.fields
        if event.key in TRAINING:
            break
    return {}


def _attempt(name: str, events: range, note: Mapping[str, object], folder: Path | None) -> RecordedAttempt:
    """``folder``: None where there is none; what is in it comes before the note."""
    start = None if folder is None else read_start(folder)
    end = None if folder is None else read_end(folder)
    told = note if start is None else asdict(start)
    hosts = told.get("hosts")
    return RecordedAttempt(
        printable(name),
        events,
        job=_text(told.get("job")) or None,
        submitted_ms=as_milliseconds(told.get("submitted_s")),
        launched_ms=as_milliseconds(told.get("launched_s")),
        started_ms=as_milliseconds(told.get("started_s")),
        hosts=tuple(map(_text, hosts)) if isinstance(hosts, list | tuple) else (),
        ended_ms=None if end is None else as_milliseconds(end.ended_s),
        status=None if end is None else _number(end.status),
        action="" if end is None else _text(end.action),
        reason="" if end is None else _text(end.reason),
        cause=None if folder is None else _cause(folder),
    )


def _cause(folder: Path) -> Cause | None:
    """The first incident of an attempt."""
    first = first_cause(read_incidents(folder))
    if first is None:
        return None
    return Cause(
        as_milliseconds(first.time_s),
        _text(first.kind),
        _number(first.rank),
        _text(first.host),
        _text(first.phase),
        _text(first.message),
    )


def _text(value: object) -> str:
    return printable(value) if isinstance(value, str) else ""


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
