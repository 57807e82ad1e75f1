"""Read objects below an address; what fails is tried again, and a broken connection is resumed where it broke off.

obstore has threads, and a process that has used it cannot be forked: a command that forks workers asks for facts with
:func:`facts_of_all`, which uses a process of its own.
"""

import math
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

from foundation.child_processes import begin_worker
from foundation.errors import InputError, first_line
from foundation.network.addresses import Address
from foundation.network.object_store import AccessDenied, AccessRefused, ObjectFacts, ObjectStore

TRIES = 5
SECONDS_BETWEEN_LINES = 10.0
ASKED_AT_ONCE = 16
_users: set[int] = set()
"""Id of this process, once it has read from an address."""


class DeniedObject(InputError):
    """An object that its server denies. Some servers answer so for objects that do not exist."""


class RemoteFolder:
    """Objects below an address, or the object at it (key ""). Threads may share a folder."""

    def __init__(
        self, address: Address, *, bytes_per_s: float | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """``bytes_per_s``: most bytes read per second, on average, by all threads together."""
        if _users and os.getpid() not in _users:  # obstore's threads stayed in the process that was forked
            raise RuntimeError("an address is read in a process that was forked after its parent had read addresses")
        _users.add(os.getpid())
        self.address = address
        self._store = _store(address)
        self._rate, self._sleep = bytes_per_s, sleep
        self._lock, self._free_at = threading.Lock(), 0.0
        self._printed: dict[int, float] = {}
        """Time of the last line about an object that failed so many times."""

    def facts(self, key: str = "") -> ObjectFacts | None:
        """Ask for an object; return None if there is none. Raises InputError if the server gives no answer."""
        failures = 0
        while True:
            try:
                return self._store.facts(key)
            except FileNotFoundError:
                return None
            except OSError as error:
                failures += 1
                self._wait_or_raise(key, error, failures)

    def read(self, key: str = "", *, expected: ObjectFacts | None = None) -> bytes | None:
        """Return an object's content; None if there is no such object.

        Raises InputError if the object cannot be had or differs from ``expected``.
        """
        try:
            return b"".join(self._blocks(key, expected))
        except FileNotFoundError:
            return None

    def stream(self, key: str = "", *, expected: ObjectFacts | None = None) -> Iterator[bytes]:
        """Yield an object's bytes, once each and in order, about a MiB at a time.

        Raises InputError in the cases of :meth:`read`, and if there is no such object.
        """
        try:
            yield from self._blocks(key, expected)
        except FileNotFoundError:
            raise InputError(f"{self._where(key)}: no such object") from None

    def _blocks(self, key: str, expected: ObjectFacts | None) -> Iterator[bytes]:
        """Yield an object's bytes; after a broken connection, continue where it broke off."""
        position = failures = 0
        while True:
            try:
                facts, blocks = self._store.open(key, position)
                if expected is not None and facts != expected:
                    raise InputError(f"{self._where(key)}: changed since it was first asked for; run the command again")
                for block in blocks:
                    self._spend(len(block))
                    position, failures = position + len(block), 0
                    yield block
                return
            except FileNotFoundError:
                raise
            except OSError as error:
                failures += 1
                self._wait_or_raise(key, error, failures)

    def _wait_or_raise(self, key: str, error: OSError, failures: int) -> None:
        reason = self.address.without_secrets(first_line(error))[:300]
        if isinstance(error, AccessRefused) or failures == TRIES:
            kind = DeniedObject if isinstance(error, AccessDenied) else InputError
            raise kind(
                f"{self._where(key)}: cannot be read, tried {failures} times ({reason}); check the address, the "
                "credentials and the network, and run the command again, it goes on from here"
            ) from None
        pause = 2.0**failures
        with self._lock:
            is_news = time.monotonic() - self._printed.get(failures, -math.inf) > SECONDS_BETWEEN_LINES
            self._printed[failures] = time.monotonic() if is_news else self._printed[failures]
        if is_news:  # of many objects that fail together, one is named
            print(f"{self._where(key)}: {reason}; trying again in {pause:.0f} s", file=sys.stderr, flush=True)
        self._sleep(pause)

    def _spend(self, count: int) -> None:
        """Wait until ``count`` more bytes are within the rate."""
        if self._rate is None:
            return
        with self._lock:
            time_s = time.monotonic()
            self._free_at = max(self._free_at, time_s) + count / self._rate
            wait = self._free_at - time_s
        self._sleep(wait)

    def _where(self, key: str) -> str:
        return str(self.address.below(key)) if key else str(self.address)


def _store(address: Address) -> ObjectStore:
    if address.is_web:
        from foundation.network.web_store import WebStore  # its libraries take a moment, which local files do not need

        return WebStore(address)
    from foundation.network.bucket_store import BucketStore

    return BucketStore(address)


def facts_of_all(addresses: Sequence[Address]) -> list[ObjectFacts]:
    """Ask for many objects at a time, in a process of its own, so that this one can still be forked.

    Raises InputError for the first object that does not exist or cannot be had.
    """
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, initializer=begin_worker) as apart:
        return apart.submit(_facts_of_all, addresses).result()


def _facts_of_all(addresses: Sequence[Address]) -> list[ObjectFacts]:
    def ask(address: Address) -> ObjectFacts:
        facts = RemoteFolder(address).facts()
        if facts is None:
            raise InputError(f"{address}: no such object")
        return facts

    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        return list(pool.map(ask, addresses))
