"""Logs that would take long or much memory, and what a review of them takes."""

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.benchmark.review.damage import Log
from tests.benchmark.review.fixture import as_text, records
from tests.benchmark.review.sound_review import assert_sound, review_log

MOST_CPU_S = 10.0
MOST_BYTES_MORE = 1 << 30


@dataclass(frozen=True)
class Measured:
    """A review of one log by our own rules, with screen and JSON."""

    cpu_s: float
    bytes_more: int
    """By which the process's largest memory grew."""

    @property
    def within_limits(self) -> bool:
        return self.cpu_s < MOST_CPU_S and self.bytes_more < MOST_BYTES_MORE


def measured(content: bytes) -> Measured:
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    assert_sound(review_log(content))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Measured(time.process_time() - started, (after - before) << 10)


def _line(text: str) -> bytes:
    return f":::MLLOG {text}\n".encode()


def _with(key: str, value: str, times: int = 1) -> bytes:
    """A log with so many more records of a key, the value as JSON."""
    log = as_text(records(1)).encode()
    place = log.index(b'"key": "block_stop"')
    place = log.rindex(b"\n", 0, place) + 1
    record = f'{{"key": "{key}", "value": {value}, "time_ms": 1728501000000, "event_type": "POINT_IN_TIME", '
    return log[:place] + _line(record + '"metadata": {"step": 50331648, "epoch_num": 50331648}}') * times + log[place:]


def _evaluations() -> bytes:
    log = Log(records(1))
    place = log.place("eval_accuracy", 3)
    log.records[place:place] = [log.copied(place) for _ in range(25_000)]
    return as_text(log.records).encode()


def _keys(count: int, different: int) -> str:
    return "{" + ", ".join(f'"k{number % different}": {number}' for number in range(count)) + "}"


HUGE: dict[str, Callable[[], bytes]] = {
    "60,000 keys in a value": lambda: _with("tracked_stats", _keys(60_000, 60_000)),
    "60,000 keys, each twice": lambda: _with("tracked_stats", _keys(60_000, 30_000)),
    "25,000 restarts": lambda: _with("restart", "1", 25_000),
    "25,000 seeds": lambda: _with("seed", "7", 25_000),
    "25,000 run_starts": lambda: _with("run_start", "null", 25_000),
    "25,000 evaluations": _evaluations,
    "25,000 restarts and evaluations": lambda: _with("restart", "1", 25_000) + _with("eval_accuracy", "2.7", 25_000),
    "a text of 900 kB": lambda: _with("submission_org", '"' + "x" * 900_000 + '"'),
    "a text of 900 kB of control characters": lambda: _with("submission_org", '"' + "\\u001b" * 150_000 + '"'),
    "250 MB of newlines": lambda: b"\n" * 250_000_000 + as_text(records(1)).encode(),
    "50 MB of newlines": lambda: b"\n" * 50_000_000 + as_text(records(1)).encode(),
    "100 MB of carriage returns": lambda: as_text(records(1)).encode() + b"\r" * 100_000_000,
    "100 MB without a newline": lambda: as_text(records(1)).encode() + b"x" * 100_000_000,
    "100 MB of tokens in a line": lambda: b":::MLLOG " * 11_000_000,
    "a million lines with tokens": lambda: b":::MLLOG {\n" * 1_000_000,
    "a number of 400 digits": lambda: _with("train_samples", "1" * 400),
    "a number of 100,000 digits": lambda: _with("train_samples", "1" * 100_000),
    "arrays in arrays": lambda: _with("x", "[" * 90_000 + "]" * 90_000),
    "a million empty arrays": lambda: _with("x", "[" + "[]," * 300_000 + "[]]", 9),
    "a million lines of another program": lambda: b"step 5 of 6\n" * 1_000_000 + as_text(records(1)).encode(),
}
