"""Read objects at addresses with obstore: ``gs://bucket/path``, ``s3://bucket/path``, ``http(s)://host/path``.

Credentials come from the environment or from the machine's role; without them, a bucket is read anonymously. An address
may hold secrets, a user's name and password or a signed query; secrets are neither printed nor written.

obstore has threads, and a process that has used it cannot be forked: a command that forks workers asks for facts with
:func:`facts_of_all`, which uses a process of its own.
"""

import itertools
import multiprocessing
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from foundation.child_processes import begin_worker
from foundation.errors import InputError, first_line

SCHEMES = ("gs", "s3", "http", "https")
HIDDEN = "…"
TRIES = 5
SILENCE_S = 20
"""Seconds of a server's silence after which it is asked again."""
PIECE_BYTES = 1 << 20
ASKED_AT_ONCE = 16
_users: set[int] = set()
"""Id of this process, once it has used obstore."""


def is_address(text: str) -> bool:
    """Return whether ``text`` is an address: a name with ``://`` in it is no local path."""
    return "://" in text


@dataclass(frozen=True)
class Address:
    """An object, or a folder of objects."""

    url: str
    """The whole URL, with its secrets."""
    endpoint_url: str | None = None
    """URL of an S3 server other than Amazon's."""

    def __str__(self) -> str:
        """Return the address without secrets, for messages and manifests."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    @property
    def name(self) -> str:
        """The last part of the path; its ending tells the kind of a file."""
        return urlsplit(self.url).path.rstrip("/").rpartition("/")[2]

    def below(self, key: str) -> "Address":
        """Return the address of ``key`` in the folder that this address names."""
        parts = urlsplit(self.url)
        return replace(self, url=urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{key}")))

    def without_secrets(self, text: str) -> str:
        """Return a library's message, which may contain the whole address, without secrets."""
        parts = urlsplit(self.url)
        user = parts.netloc.rpartition("@")[0]
        for secret in sorted(
            {parts.query, user, *user.split(":"), *parts.query.split("&")} - {""}, key=len, reverse=True
        ):
            text = text.replace(secret, HIDDEN)
        return text


def parse_address(text: str, endpoint_url: str | None = None) -> Address:
    """Parse an address; ``endpoint_url`` is that of ``--endpoint-url``. Raises InputError, without the address's
    secrets."""
    scheme = text.partition("://")[0].lower()
    try:
        parts = urlsplit(text)
        plain = "@" not in parts.netloc and parts.port is None and not parts.query
        fits = scheme in SCHEMES and bool(parts.hostname) and not parts.fragment
    except ValueError:
        fits = False
    if not fits or not (plain or scheme.startswith("http")):
        raise InputError(
            f"--input {scheme[:20]}://{HIDDEN}: expected a local path, gs://, s3://, http:// or https://, "
            "with BUCKET/PATH or HOST/PATH behind it"
        )
    if endpoint_url is not None and (scheme != "s3" or not re.match(r"https?://[^/@?#]+/?$", endpoint_url)):
        raise InputError("--endpoint-url: expected http(s)://HOST, and an --input of s3://BUCKET/PATH")
    return Address(urlunsplit(parts._replace(scheme=scheme)), endpoint_url)


@dataclass(frozen=True)
class Facts:
    """Facts about an object, from its server."""

    bytes: int
    version: str
    """The ETag or generation, else the time of modification; empty if the server gives none of them."""


class RemoteFolder:
    """Objects below an address, or the object at it (key ""). Threads may share a folder."""

    def __init__(
        self, address: Address, *, bytes_per_s: float | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """``bytes_per_s``: most bytes read per second, on average, by all threads together."""
        if _users and os.getpid() not in _users:  # obstore's threads stayed in the process that was forked
            raise RuntimeError("an address is read in a process that was forked from one that had read addresses")
        _users.add(os.getpid())
        self.address = address
        self._store = _store(address)
        self._rate, self._sleep = bytes_per_s, sleep
        self._lock, self._free_at = threading.Lock(), 0.0

    def facts(self, key: str = "") -> Facts | None:
        """Ask for an object; return None if there is none. Raises InputError if the server gives no answer."""
        import obstore
        from obstore.exceptions import BaseError

        for failures in itertools.count(1):
            try:
                try:
                    return _facts(obstore.head(self._store, key))
                except BaseError as error:  # a signed address is often for GET alone; the body is not read
                    if isinstance(error, FileNotFoundError) or not self.address.url.startswith("http"):
                        raise
                    return _facts(obstore.get(self._store, key).meta)
            except FileNotFoundError:
                return None
            except (BaseError, OSError) as error:
                self._wait_or_raise(key, error, failures)
        raise AssertionError("it has returned or raised")

    def read(self, key: str = "", *, expected: Facts | None = None) -> bytes | None:
        """Return an object's content; None if there is no such object.

        Raises InputError if the object cannot be had or differs from ``expected``.
        """
        try:
            return b"".join(self._pieces(key, expected))
        except FileNotFoundError:
            return None

    def stream(self, key: str = "", *, expected: Facts | None = None) -> Iterator[bytes]:
        """Yield an object's bytes, once each and in order, about a MiB at a time.

        Raises InputError in the cases of :meth:`read`, and if there is no such object.
        """
        try:
            yield from self._pieces(key, expected)
        except FileNotFoundError:
            raise InputError(f"{self._where(key)}: no such object") from None

    def _pieces(self, key: str, expected: Facts | None) -> Iterator[bytes]:
        """Yield an object's bytes; after a broken connection, continue where it broke off."""
        from obstore.exceptions import BaseError

        position = failures = 0
        while True:
            try:
                for piece in self._from(key, position, expected):
                    self._spend(len(piece))
                    position, failures = position + len(piece), 0
                    yield piece
                return
            except FileNotFoundError:
                raise
            except (BaseError, OSError) as error:  # obstore's own; a body that breaks off raises an OSError
                failures += 1
                self._wait_or_raise(key, error, failures)

    def _from(self, key: str, position: int, expected: Facts | None) -> Iterator[bytes]:
        import obstore
        from obstore.exceptions import NotSupportedError

        skip = 0
        try:
            found = obstore.get(self._store, key, options={"range": {"offset": position}} if position else {})
        except NotSupportedError:  # a server without ranges
            found, skip = obstore.get(self._store, key), position
        if expected is not None and _facts(found.meta) != expected:
            raise InputError(f"{self._where(key)}: changed since it was first asked for; run the command again")
        for buffer in found.stream(min_chunk_size=PIECE_BYTES):
            piece = bytes(buffer)
            if skip < len(piece):
                yield piece[skip:]
            skip = max(0, skip - len(piece))

    def _wait_or_raise(self, key: str, error: Exception, failures: int) -> None:
        from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

        reason = self.address.without_secrets(first_line(error))[:300]
        final = isinstance(error, (PermissionDeniedError, UnauthenticatedError))
        if final or failures == TRIES:
            raise InputError(
                f"{self._where(key)}: cannot be read, tried {failures} times ({reason}); check the address, the "
                "credentials and the network, and run the command again, it goes on from here"
            ) from None
        pause = 2.0**failures
        print(f"{self._where(key)}: {reason}; trying again in {pause:.0f} s", file=sys.stderr, flush=True)
        self._sleep(pause)

    def _spend(self, count: int) -> None:
        """Wait until ``count`` more bytes are within the rate."""
        if self._rate is None:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + count / self._rate
            wait = self._free_at - now
        self._sleep(wait)

    def _where(self, key: str) -> str:
        return str(self.address.below(key)) if key else str(self.address)


def facts_of_all(addresses: Sequence[Address]) -> list[Facts]:
    """Ask for many objects at a time, in a process of its own, so that this one can still be forked.

    Raises InputError for the first object that does not exist or cannot be had.
    """
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, initializer=begin_worker) as apart:
        return apart.submit(_facts_of_all, addresses).result()


def _facts_of_all(addresses: Sequence[Address]) -> list[Facts]:
    def ask(address: Address) -> Facts:
        found = RemoteFolder(address).facts()
        if found is None:
            raise InputError(f"{address}: no such object")
        return found

    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        return list(pool.map(ask, addresses))


def _facts(meta: Any) -> Facts:
    when = meta["last_modified"]
    told = when.isoformat() if when.timestamp() else ""  # obstore says 1970 where the server says nothing
    return Facts(meta["size"], meta["e_tag"] or meta["version"] or told)


CREDENTIALS = {
    "s3": ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
    "gs": ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY"),
}
"""Variables that name credentials, by scheme."""
METADATA_SERVERS = {"s3": "169.254.169.254", "gs": "metadata.google.internal"}
"""Servers from which a machine in the cloud gets the credentials of its role, by scheme."""


def _has_credentials(scheme: str) -> bool:
    """Return whether requests can be signed; without credentials a public bucket is read anonymously."""
    if any(name in os.environ for name in CREDENTIALS[scheme]):
        return True
    if scheme == "gs" and Path("~/.config/gcloud/application_default_credentials.json").expanduser().exists():
        return True
    try:
        socket.create_connection((METADATA_SERVERS[scheme], 80), timeout=1.0).close()
    except OSError:
        return False
    return True


def _store(address: Address) -> Any:
    from obstore.store import HTTPStore, from_url

    client: Any = {"allow_http": True, "read_timeout": f"{SILENCE_S}s", "timeout": "1h"}
    once: Any = {"max_retries": 0}  # RemoteFolder asks again itself, and says so
    scheme = urlsplit(address.url).scheme
    if scheme in ("http", "https"):
        return HTTPStore.from_url(address.url, client_options=client, retry_config=once)
    where: Any = {"endpoint": address.endpoint_url} if address.endpoint_url else {}
    return from_url(
        address.url,
        client_options=client,
        retry_config=once,
        skip_signature=not _has_credentials(scheme),
        **where,
    )
