"""The interface of a store of objects for reading, whether buckets or a web server."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

SILENCE_S = 20
"""Seconds of a server's silence after which it is asked again."""
BLOCK_BYTES = 1 << 20
"""Bytes of an object that are read at a time."""


class AccessRefused(OSError):
    """A server refuses to send an object, or its answer is not to be trusted; asking again does not help."""


class AccessDenied(AccessRefused):
    """A server denies access to an object; some answer so for objects that do not exist."""


@dataclass(frozen=True)
class ObjectFacts:
    """Facts about an object, from its server."""

    bytes: int
    version: str
    """The ETag or generation, else the time of modification; empty if the server gives none of them."""


class ObjectStore(Protocol):
    """Objects by key, each asked for once: the caller tries again. Threads may share a store."""

    def facts(self, key: str) -> ObjectFacts:
        """Ask for an object. Raises FileNotFoundError if there is none, AccessRefused, and another OSError if the
        server gives no answer."""

    def open(self, key: str, position: int) -> tuple[ObjectFacts, Iterator[bytes]]:
        """Return an object's facts, and its bytes from ``position`` on. Raises the errors of :meth:`facts`, also
        while the bytes are read."""
