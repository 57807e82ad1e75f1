"""Run a sink in a thread of its own and try again when it fails: it never stops or slows the reporter of events."""

import contextlib
import sys
import threading
import time
from collections import deque

from benchmark.run_record.events.event import Event, Sink

RETRY_S = 1.0
LAST_RETRY_S = 0.1
"""Seconds between tries at the end of a run."""
CLOSE_S = 10.0
"""Seconds that the end of a run waits for a sink that fails or hangs."""
TRIES = 3
"""Tries for an event that is refused for another reason than a failing disk or network; those may recover."""
MOST_PENDING = 100_000
"""Most events kept for a sink that fails: a run of 175B has a few thousand. Further ones are lost, and counted."""


class Background:
    """Give every event to ``sink``, in order.

    A failure is one line on standard error, and so is the recovery from it.
    """

    def __init__(self, sink: Sink, *, retry_s: float = RETRY_S, most_pending: int = MOST_PENDING) -> None:
        self.sink, self._retry_s, self._most_pending = sink, retry_s, most_pending
        self._pending: deque[Event] = deque()
        self._changed = threading.Condition()
        self._closing = self._given_up = self._failing = False
        self._lost = 0
        self._thread = threading.Thread(target=self._work, name=f"events to {sink.name}", daemon=True)
        self._thread.start()

    def write(self, event: Event) -> None:
        """Take an event; returns at once."""
        with self._changed:
            if len(self._pending) < self._most_pending:
                self._pending.append(event)
                self._changed.notify_all()
            else:
                self._lost += 1

    def pending(self) -> tuple[Event, ...]:
        """Return the events that the sink has not taken yet, the oldest first; it may have taken a part of the
        first."""
        with self._changed:
            return tuple(self._pending)

    def drain(self, patience_s: float = CLOSE_S) -> bool:
        """Wait until the sink has every event, even while it fails; return whether it has them all and lost none."""
        with self._changed:
            self._changed.wait_for(lambda: not self._pending, patience_s)
            return not self._pending and not self._lost

    def close(self, patience_s: float = CLOSE_S) -> None:
        """Wait until the sink has every event and is closed; give up after ``patience_s``.

        Its own thread closes the sink, because closing may hang, too.
        """
        deadline = time.monotonic() + patience_s
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._pending, patience_s)
            self._given_up = True
            self._lost += len(self._pending)
            self._changed.notify_all()
        self._thread.join(max(0.1, deadline - time.monotonic()))
        if self._lost:
            _say(f"{self.sink.name}: {self._lost} events could not be written")

    def _work(self) -> None:
        tries = 0
        while (event := self._next()) is not None:
            tries += 1
            try:
                self.sink.write(event)
            except Exception as error:
                self._has_failed(error)
                if isinstance(error, OSError) or tries < TRIES:
                    continue
                self._lost += 1
            else:
                if self._failing:
                    _say(f"{self.sink.name}: works again")
                self._failing = False
            tries = 0
            with self._changed:
                self._pending.popleft()
                self._changed.notify_all()
        with contextlib.suppress(Exception):
            self.sink.close()

    def _has_failed(self, error: Exception) -> None:
        """Report the first failure in a row, and wait before the next try."""
        if not self._failing:
            _say(f"{self.sink.name}: {_why(error)}; training goes on, and it is tried again")
        with self._changed:
            self._failing = True
            self._changed.notify_all()
            pause_s = min(LAST_RETRY_S, self._retry_s) if self._closing else self._retry_s
            self._changed.wait_for(lambda: self._given_up, pause_s)

    def _next(self) -> Event | None:
        """Return the oldest event, once there is one; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._closing)
            return self._pending[0] if self._pending and not self._given_up else None


def _why(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())


def _say(message: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(f"warning: {message}", file=sys.stderr, flush=True)
