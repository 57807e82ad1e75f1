"""Progress of long work, in one line: how far, files, rate, the time that is left, and what limits it.

On a terminal the line stands beside a bar and changes; elsewhere it is written every so often.
"""

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_CHANGES = 0.2
"""On a terminal."""
BAR_COLUMNS = 16
"""Of a terminal; the text behind the bar is cut off where there are no more columns."""
MEAN_OVER_S = 60.0
"""The rate is that of the last minute or so."""


class Advance(Protocol):
    """A function that is told how much work is done; :class:`Meter` is one."""

    def __call__(self, amount: float) -> None: ...


class Meter:
    """Adds up what is done. Threads may share it."""

    def __init__(self, title: str, total: float, unit: str, *, files: int | None = None) -> None:
        self._title, self._total, self._unit, self._all_files = title, total, unit, files
        self._done = self._files = 0.0
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._lock = threading.Lock()
        self._started = self._seen = time.monotonic()
        self._new = 0.0
        self._rate: float | None = None
        self._show: Callable[[Meter], None] | None = None

    def __call__(self, amount: float, files: int = 0) -> None:
        """Count ``amount`` more as done, and ``files`` more as finished."""
        with self._lock:
            self._done += amount
            self._files += files
            self._new += amount
        if self._show is not None:
            self._show(self)

    def done_before(self, amount: float, files: int = 0) -> None:
        """Count what an earlier call has done: it needs no work, and does not count in the rate."""
        with self._lock:
            self._done += amount
            self._files += files

    def spent(self, doing: str, seconds: float) -> None:
        """Add the time of a thread for ``doing``, such as "reading": what takes most is what limits the work."""
        with self._lock:
            self._spent[doing] += seconds

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Add the time that the block takes, as ``spent`` does."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.spent(what, time.perf_counter() - started)

    def show_by(self, show: "Callable[[Meter], None]") -> None:
        """Have ``show(self)`` called after every amount."""
        self._show = show

    @property
    def done(self) -> float:
        return self._done

    def line(self) -> str:
        """How far the work is, how fast, how long it will take and what limits it, as far as that is known."""
        with self._lock:
            self._update_rate()
            share = 100 * self._done / self._total if self._total else 100
            parts = [f"{_of(self._done, self._total, self._unit)} ({share:.0f} %)"]
            if self._all_files is not None:
                parts.append(f"{self._files:,.0f} of {self._all_files:,} files")
            if self._rate:
                parts.append(_rate_text(self._rate, self._unit))
                if self._done < self._total:
                    parts.append(f"{duration((self._total - self._done) / self._rate)} left")
            if sum(self._spent.values()) > 0:
                doing, longest = max(self._spent.items(), key=lambda item: item[1])
                parts.append(f"limited by {doing} ({100 * longest / sum(self._spent.values()):.0f} % of the time)")
            return ", ".join(parts)

    def _update_rate(self) -> None:
        """A mean in which what is older than a minute hardly counts."""
        passed = time.monotonic() - self._seen
        if passed <= 0:
            return
        rate, weight = self._new / passed, min(1.0, passed / MEAN_OVER_S)
        older = time.monotonic() - self._started > passed
        self._rate = self._rate * (1 - weight) + rate * weight if self._rate is not None and older else rate
        self._seen, self._new = time.monotonic(), 0.0


@contextmanager
def progress(title: str, total: float, unit: str, *, files: int | None = None) -> Iterator[Meter]:
    """Yield what is called with each amount of work done, in ``unit``; ``total`` is the whole, in ``files`` files."""
    meter = Meter(title, total, unit, files=files)
    if not sys.stderr.isatty():
        meter.show_by(
            _every(SECONDS_BETWEEN_LINES, lambda at: print(f"{title}: {at.line()}", file=sys.stderr, flush=True))
        )
        yield meter
        return
    from rich.console import Console  # slow to import, and not needed elsewhere
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    one_line = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    text = TextColumn("{task.fields[line]}", markup=False, table_column=one_line)
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=BAR_COLUMNS), text)
    with Progress(*columns, console=Console(stderr=True), transient=True, expand=True) as bars:
        bar = bars.add_task(title, total=total, line="")
        meter.show_by(_every(SECONDS_BETWEEN_CHANGES, lambda at: bars.update(bar, completed=at.done, line=at.line())))
        yield meter
        bars.update(bar, completed=meter.done, line=meter.line())


def _every(seconds: float, show: Callable[[Meter], None]) -> Callable[[Meter], None]:
    lock, following = threading.Lock(), [time.monotonic() + seconds]

    def show_now_and_then(meter: Meter) -> None:
        if time.monotonic() < following[0] or not lock.acquire(blocking=False):
            return
        try:
            following[0] = time.monotonic() + seconds
            show(meter)
        finally:
            lock.release()

    return show_now_and_then


def _of(done: float, total: float, unit: str) -> str:
    """Bytes in the unit of the whole."""
    if unit != "bytes" or total < 1e6:
        return f"{done:,.0f} of {total:,.0f} {unit}"
    size, name = next((size, name) for size, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")) if total >= size)
    return f"{done / size:,.2f} of {total / size:,.2f} {name}"


def _rate_text(rate: float, unit: str) -> str:
    return f"{rate / 1e6:,.1f} MB/s" if unit == "bytes" else f"{rate:,.1f} {unit}/s"


def duration(seconds: float) -> str:
    """'47 s', '12 min', '3 h 05 min'."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
