"""A claim: a file that says who works here, where locks do not reach other machines or the file system has none.

It is created with O_EXCL, so one of several gets it, and its owner changes a number in it every few seconds. Whoever
wants it too and sees that the number stands still takes it over, by renaming a claim of its own onto it; whoever sees
at once that the owner has ended (a process of the same machine) need not wait. An owner that stood still for so long
that another took over finds out by :meth:`Claim.require_held`, which comes before anything is published.

No clocks are compared: they differ between machines.
"""

import contextlib
import errno
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from stage.claims.process_identity import ProcessIdentity, identity_from, next_own_name, this_process
from stage.errors import InputError

BEAT_S = 2.0
STALE_S = 15.0
"""An owner that has not been heard of for so long has ended; a beat may be late by that much."""
SETTLE_S = 1.0
"""Of several that take over at the same time the last one has it; after this long they all see which."""
BEAT_DIGITS = 12
LARGEST_CLAIM = 1 << 12


@dataclass(frozen=True)
class _Seen:
    """What a claim file said."""

    content: bytes
    token: str | None
    """None where it cannot be read: it is being written, or is none of ours."""
    owner: ProcessIdentity | None


class Claim:
    """Held until :meth:`release`."""

    def __init__(self, path: Path, token: str) -> None:
        self._path, self._token = path, token
        self._ended = threading.Event()
        threading.Thread(target=self._beat, daemon=True, name=f"claim {path.name}").start()

    def require_held(self) -> None:
        """Raise InputError where another process has taken over, or the file is gone."""
        seen = _read(self._path)
        if seen is None or seen.token != self._token:
            by = f"by {seen.owner}" if seen is not None and seen.owner is not None else "or its folder removed"
            raise InputError(
                f"{self._path}: this work was taken over {by} while this process stood still; nothing of it was "
                "published here, let the other one end"
            )

    def release(self) -> None:
        self._ended.set()
        seen = _read(self._path)
        if seen is not None and seen.token == self._token:
            self._path.unlink(missing_ok=True)

    def _beat(self) -> None:
        for number in range(1, 10**BEAT_DIGITS):
            if self._ended.wait(BEAT_S):
                return
            with contextlib.suppress(OSError):  # a disk that hangs: the next beat tries again
                if not _write_beat(self._path, self._token, number):
                    return


class Watch:
    """What somebody who waits for a claim has seen of it."""

    def __init__(self) -> None:
        self._content: bytes | None = None
        self._since = time.monotonic()

    def stands_still(self, content: bytes) -> bool:
        """Whether it has said the same for STALE_S."""
        if content != self._content:
            self._content, self._since = content, time.monotonic()
        return time.monotonic() - self._since >= STALE_S


def try_claim(
    path: Path, watch: Watch, *, ended: Callable[[ProcessIdentity], bool | None] = ProcessIdentity.has_ended
) -> Claim | ProcessIdentity | None:
    """Take the claim at ``path`` if it is free or its owner has ended; else who has it, None where nobody says.

    ``ended`` says whether a process has; None: only its beats can tell.
    """
    token = next_own_name()
    content = _content(token)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        seen = _read(path)
        if seen is None:  # released in between
            return None
        gone = None if seen.owner is None else ended(seen.owner)
        if gone or (gone is None and watch.stands_still(seen.content)):
            return _take_over(path, seen, token, content, settle_s=0.0 if gone else SETTLE_S)
        return seen.owner
    try:
        try:
            written = os.write(handle, content)
        finally:
            os.close(handle)
        if written != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        path.unlink(missing_ok=True)  # or all others would wait for it to stand still
        raise OSError(error.errno, error.strerror, str(path)) from error
    return Claim(path, token)


def _take_over(path: Path, stale: _Seen, token: str, content: bytes, *, settle_s: float) -> Claim | None:
    own = path.with_name(f"{path.name}.{token}")
    own.write_bytes(content)
    try:
        now = _read(path)
        if now is None or now.content != stale.content:
            return None
        os.replace(own, path)
    finally:
        own.unlink(missing_ok=True)
    time.sleep(settle_s)
    found = _read(path)
    return Claim(path, token) if found is not None and found.token == token else None


def owner_of(path: Path) -> ProcessIdentity | None:
    """Who the claim file at ``path`` names; None where there is none, or it is not readable."""
    seen = _read(path)
    return None if seen is None else seen.owner


def _content(token: str) -> bytes:
    fields = {"beat": "0" * BEAT_DIGITS, "token": token, "owner": asdict(this_process())}
    return (json.dumps(fields) + "\n").encode()


def _read(path: Path) -> _Seen | None:
    """Opened anew each time, which makes a network file system ask the server."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_CLAIM)
    except FileNotFoundError:
        return None
    try:
        fields = json.loads(content)
        return _Seen(content, str(fields["token"]), identity_from(fields["owner"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return _Seen(content, None, None)


def _write_beat(path: Path, token: str, number: int) -> bool:
    """Write into the file that was found to be ours, wherever its name leads by now; False where it is not ours."""
    handle = os.open(path, os.O_RDWR)
    try:
        content = os.read(handle, LARGEST_CLAIM)
        if f'"token": "{token}"'.encode() not in content:
            return False
        place = content.index(b'"beat": "') + len(b'"beat": "')
        os.pwrite(handle, f"{number:0{BEAT_DIGITS}d}".encode(), place)
        return True
    finally:
        os.close(handle)
