"""What a single object is read by, and what is asked of it: two kinds of servers, one way to be patient with them."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from stage.errors import InputError
from stage.remote.object_address import ObjectAddress
from stage.remote.patience import TRIES, RateLimit, pause_s

AGAIN = "check the address, the credentials and the network, and run the command again, it goes on from here"


@dataclass(frozen=True)
class ObjectFacts:
    """An object as its server describes it."""

    bytes: int | None
    """None where the server does not tell before it has sent all."""
    version: str | None
    """What the server calls this content: ETag, generation, or time of modification; None where it tells nothing."""


class Passing(Exception):
    """A failure that trying again may mend; its message is for people, and without secrets."""


class ByteSource(Protocol):
    """One object. What it raises besides Passing is an InputError."""

    address: ObjectAddress

    def describe(self) -> ObjectFacts:
        """Ask the server, without moving the content."""
        ...

    def pieces(self, start: int, facts: ObjectFacts) -> Iterator[bytes]:
        """The bytes from ``start`` on, a MiB or so at a time; ends where the object does, and nowhere else.

        Raises InputError where the object is not the one of ``facts``.
        """
        ...


def changed(address: ObjectAddress, what: str) -> InputError:
    return InputError(f"{address}: changed while it was read ({what}); run the command again")


def described(source: ByteSource, sleep: Callable[[float], None] = time.sleep) -> ObjectFacts:
    """Raises InputError where the server gives no answer in several tries."""
    for failures in range(1, TRIES + 1):
        try:
            return source.describe()
        except Passing as error:
            _give_up_or_wait(source.address, error, failures, sleep)
    raise AssertionError("not reached")


def read_patiently(
    source: ByteSource, facts: ObjectFacts, limit: RateLimit, sleep: Callable[[float], None] = time.sleep
) -> Iterator[bytes]:
    """All bytes of an object, once each and in order: after a failure it is gone on with where it broke off.

    Raises InputError where nothing more comes in several tries, or the object is no longer the one of ``facts``.
    """
    position, failures = 0, 0
    while True:
        try:
            for piece in source.pieces(position, facts):
                limit.spend(len(piece))
                position, failures = position + len(piece), 0
                yield piece
        except Passing as error:
            failures += 1
            _give_up_or_wait(source.address, error, failures, sleep)
        else:
            return


def _give_up_or_wait(address: ObjectAddress, error: Passing, failures: int, sleep: Callable[[float], None]) -> None:
    if failures == TRIES:
        raise InputError(f"{address}: cannot be read in {failures} tries ({error}); {AGAIN}") from None
    sleep(pause_s(failures))
