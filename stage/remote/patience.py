"""How long to go on asking, and how fast: what all reading from elsewhere has in common."""

import random
import threading
import time
from collections.abc import Callable

TRIES = 6
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0


def pause_s(failures: int) -> float:
    """Before the next try after so many that failed in a row; not the same for all who wait."""
    return min(FIRST_PAUSE_S * 2.0 ** (failures - 1), LONGEST_PAUSE_S) * random.uniform(0.5, 1.0)


class RateLimit:
    """So many bytes per second on average, for all threads together."""

    def __init__(self, bytes_per_s: float | None, sleep: Callable[[float], None] = time.sleep) -> None:
        self._rate, self._sleep = bytes_per_s, sleep
        self._lock = threading.Lock()
        self._free_at = time.monotonic()

    def spend(self, count: int) -> None:
        """Wait until ``count`` bytes more are within the limit."""
        if self._rate is None:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + count / self._rate
            wait = self._free_at - now
        self._sleep(wait)
