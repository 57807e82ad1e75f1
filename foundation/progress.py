"""Show the progress of long work in one line: share done, files, rate, time left, and the limiting activity.

On a terminal the line stands beside a bar and changes; elsewhere a line is written at an interval.
"""

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from foundation.sizes import about, significant

SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_CHANGES = 0.2
"""Seconds between changes of the line on a terminal."""
BAR_COLUMNS = 16
"""Width of the bar on a terminal; the text after the bar is cut off if there are no more columns."""


class Meter:
    """Add up the work done, and show it now and then. Threads may share a meter."""

    def __init__(
        self, total: float, unit: str, files: int | None, show: Callable[["Meter"], None], every_s: float
    ) -> None:
        """``show(self)`` is called by a thread that reports work when ``every_s`` seconds have passed."""
        self._total, self._unit, self._all_files, self._show, self._every_s = total, unit, files, show, every_s
        self.done = self._files = self._resumed = 0.0
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._lock = threading.Lock()
        self._started = self._shown_s = time.monotonic()

    def __call__(self, amount: float, files: int = 0) -> None:
        """Count ``amount`` more work as done, and ``files`` more files as finished."""
        with self._lock:
            self.done += amount
            self._files += files
            is_due = time.monotonic() - self._shown_s >= self._every_s
            if is_due:
                self._shown_s = time.monotonic()
        if is_due:
            self._show(self)

    def done_before(self, amount: float, files: int = 0) -> None:
        """Count work done by an earlier call: it is done already, and does not count in the rate."""
        with self._lock:
            self.done += amount
            self._resumed += amount
            self._files += files

    def spent(self, doing: str, seconds: float) -> None:
        """Add the time of a thread for ``doing``, such as "reading"; the activity with the most time limits the
        work."""
        with self._lock:
            self._spent[doing] += seconds

    @contextmanager
    def doing(self, activity: str) -> Iterator[None]:
        """Add the duration of the block, as ``spent`` does."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.spent(activity, time.perf_counter() - started)

    def line(self, *, narrow: bool = False) -> str:
        """Return the share done, the rate, the time left and the limiting activity, as far as they are known.

        ``narrow``: share, rate and time come first, because the end of a long line is cut off on a terminal.
        """
        with self._lock:
            share = 100 * self.done / self._total if self._total else 100
            amount = _of(self.done, self._total, self._unit)
            parts, amounts = [f"{share:.0f} %"] if narrow else [], [amount if narrow else f"{amount} ({share:.0f} %)"]
            if self._all_files is not None:
                amounts.append(f"{self._files:,.0f} of {self._all_files:,} files")
            parts += [] if narrow else amounts
            rate = (self.done - self._resumed) / max(time.monotonic() - self._started, 1e-9)
            if rate:
                parts.append(
                    f"{significant(rate / 1e6, 2)} MB/s" if self._unit == "bytes" else f"{rate:,.1f} {self._unit}/s"
                )
                if self.done < self._total:
                    left_s = (self._total - self.done) / rate
                    parts.append(f"{about(left_s)} left")
            parts += amounts if narrow else []
            if sum(self._spent.values()) > 0:
                doing, longest = max(self._spent.items(), key=lambda item: item[1])
                parts.append(f"limited by {doing} ({100 * longest / sum(self._spent.values()):.0f} % of the time)")
            return ", ".join(parts)


@contextmanager
def progress(title: str, total: float, unit: str, *, files: int | None = None) -> Iterator[Meter]:
    """Yield a meter to call with each amount of work done, in ``unit``; ``total`` is the whole, in ``files`` files."""

    def write_line(meter: Meter) -> None:
        print(f"{title}: {meter.line()}", file=sys.stderr, flush=True)

    if not sys.stderr.isatty():
        yield Meter(total, unit, files, write_line, SECONDS_BETWEEN_LINES)
        return
    from rich.console import Console  # slow to import, and not needed elsewhere
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    one_line = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    text = TextColumn("{task.fields[line]}", markup=False, table_column=one_line)
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=BAR_COLUMNS), text)
    with Progress(*columns, console=Console(stderr=True), transient=True, expand=True) as bars:
        bar = bars.add_task(title, total=total, line="")

        def move_bar(meter: Meter) -> None:
            bars.update(bar, completed=meter.done, line=meter.line(narrow=True))

        meter = Meter(total, unit, files, move_bar, SECONDS_BETWEEN_CHANGES)
        yield meter
        move_bar(meter)


def _of(done: float, total: float, unit: str) -> str:
    """Return the amount done of the total as text; bytes are in the unit of the total."""
    if unit != "bytes" or total < 1e6:
        return f"{done:,.0f} of {total:,.0f} {unit}"
    size, name = next((size, name) for size, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")) if total >= size)
    return f"{done / size:,.2f} of {total / size:,.2f} {name}"
