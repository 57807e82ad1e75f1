"""Progress of long work: a bar on a terminal, one plain line every so often elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

SECONDS_BETWEEN_LINES = 10.0


class Advance(Protocol):
    def __call__(self, amount: float) -> None: ...


@contextmanager
def progress(title: str, total: float, unit: str) -> Iterator[Advance]:
    """Yield a function that is called with each amount of work done, in ``unit``; ``total`` is the whole."""
    if sys.stderr.isatty():
        from rich.console import Console  # slow to import, and not needed elsewhere
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
            bar = bars.add_task(title, total=total)
            yield lambda amount: bars.advance(bar, amount)
    else:
        yield _PlainLines(title, total, unit).advance


class _PlainLines:
    def __init__(self, title: str, total: float, unit: str) -> None:
        self.title, self.total, self.unit = title, total, unit
        self.done = 0.0
        self.next_line = time.monotonic() + SECONDS_BETWEEN_LINES

    def advance(self, amount: float) -> None:
        self.done += amount
        if time.monotonic() >= self.next_line:
            self.next_line = time.monotonic() + SECONDS_BETWEEN_LINES
            share = 100 * self.done / self.total if self.total else 100
            print(f"{self.title}: {self.done:,.0f} of {self.total:,.0f} {self.unit} ({share:.0f} %)", file=sys.stderr)
