"""A file on a web server, read in one answer, and by a range from where it broke off.

Redirections are followed, as hubs send to their storage. A name and password of the address go to its own host only.
"""

import base64
import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, unquote

from stage.errors import InputError
from stage.remote.byte_source import AGAIN, ObjectFacts, Passing, changed
from stage.remote.object_address import ObjectAddress

PIECE_BYTES = 1 << 20
STALLED_S = 60.0
"""Without a byte: the connection is taken to be dead."""
KEPT = "/%:@!$&'()*+,;=~-._"
"""Of a path, what is not escaped once more."""
CONTENT_RANGE = re.compile(r"bytes (?:([0-9]{1,18})-([0-9]{1,18})|\*)/([0-9]{1,18}|\*)")
PASSING_STATUSES = (408, 425, 429)
"""And all from 500 on."""
NOT_SATISFIABLE = 416


class WebFile:
    """``http://`` or ``https://``."""

    def __init__(self, address: ObjectAddress) -> None:
        self.address = address

    def describe(self) -> ObjectFacts:
        """Of the answer to a question for one byte, of which no more is read."""
        with self._asked({"Range": "bytes=0-0"}) as answer:
            if answer.status == NOT_SATISFIABLE:
                return ObjectFacts(self._range(answer)[2] or 0, _version(answer))
            total = self._range(answer)[2] if answer.status == 206 else _length(answer)
            return ObjectFacts(total, _version(answer))

    def pieces(self, start: int, facts: ObjectFacts) -> Iterator[bytes]:
        """A server that knows no ranges sends all again; what is known of it is thrown away."""
        if facts.bytes is not None and start >= facts.bytes:
            return
        headers = {"Range": f"bytes={start}-"} if start else {}
        with self._asked(headers) as answer:
            self._require_same(answer, start, facts)
            skip = start if answer.status == 200 else 0
            position = start - skip
            while True:
                try:
                    piece = answer.read(PIECE_BYTES)
                except (http.client.HTTPException, OSError, ValueError) as error:
                    raise Passing(f"after {position:,} bytes: {self._told(error)}") from None
                if not piece:
                    break
                position += len(piece)
                new = piece[max(0, len(piece) - (position - start)) :] if skip else piece
                if new:
                    yield new
            expected = facts.bytes if facts.bytes is not None else _end(answer, start)
            if expected is not None and position != expected:
                raise Passing(f"it ended after {position:,} of {expected:,} bytes")

    def _require_same(self, answer: http.client.HTTPResponse, start: int, facts: ObjectFacts) -> None:
        """Raises Passing for an answer to another question, InputError for one of another file."""
        if answer.status == NOT_SATISFIABLE:
            raise changed(self.address, f"it no longer has {start:,} bytes")
        if answer.status not in (200, 206):
            raise Passing(f"status {answer.status}")
        first, _, total = self._range(answer) if answer.status == 206 else (0, None, _length(answer))
        if answer.status == 206 and first != start:
            raise Passing(f"asked for bytes from {start:,} on, it sends them from {first} on")
        if facts.version is not None and _version(answer) != facts.version:
            raise changed(self.address, "its ETag or time of modification is another one")
        if None not in (facts.bytes, total) and total != facts.bytes:
            if facts.version is not None:  # the same file, by what the server says: one of its answers is cut
                raise Passing(f"it announces {total:,} bytes, before {facts.bytes:,}")
            raise changed(self.address, f"{total:,} bytes, before {facts.bytes:,}")

    def _range(self, answer: http.client.HTTPResponse) -> tuple[int | None, int | None, int | None]:
        """First and last byte of the answer, and the size of all."""
        match = CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", "").strip())
        if match is None:
            if answer.status == NOT_SATISFIABLE:
                return None, None, None
            raise Passing("an answer with a part that does not say which (no Content-Range)")
        first, last, total = (int(part) if part and part != "*" else None for part in match.groups())
        return first, last, total

    @contextmanager
    def _asked(self, headers: dict[str, str]) -> Iterator[http.client.HTTPResponse]:
        request = urllib.request.Request(self._url(), headers={"User-Agent": "gpt3-training-benchmark", **headers})
        if self.address.user:
            plain = unquote(self.address.user).encode()
            # not to be sent where a redirection leads
            request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(plain).decode()}")
        try:
            answer: Any = urllib.request.urlopen(request, timeout=STALLED_S)
        except urllib.error.HTTPError as error:
            if error.code != NOT_SATISFIABLE:
                error.close()
                raise self._refused(error.code, error.reason) from None
            answer = error
        except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
            raise Passing(self._told(error)) from None
        with answer:
            yield answer

    def _url(self) -> str:
        query = f"?{self.address.query}" if self.address.query else ""
        return f"{self.address.scheme}://{self.address.host}/{quote(self.address.path, safe=KEPT)}{query}"

    def _refused(self, status: int, reason: object) -> Exception:
        told = f"status {status}, {self.address.without_secrets(str(reason))[:100]}"
        if status >= 500 or status in PASSING_STATUSES:
            return Passing(told)
        if status in (404, 410):
            return InputError(f"{self.address}: no such file ({told})")
        return InputError(f"{self.address}: cannot be read ({told}); {AGAIN}")

    def _told(self, error: Exception) -> str:
        reason = getattr(error, "reason", None) or error
        return self.address.without_secrets(str(reason) or type(error).__name__).splitlines()[0][:200]


def _version(answer: http.client.HTTPResponse) -> str | None:
    tag = answer.headers.get("ETag")
    modified = answer.headers.get("Last-Modified")
    return tag or (f"modified {modified}" if modified else None)


def _length(answer: http.client.HTTPResponse) -> int | None:
    length = answer.headers.get("Content-Length", "")
    return int(length) if length.isascii() and length.isdigit() and len(length) <= 18 else None


def _end(answer: http.client.HTTPResponse, start: int) -> int | None:
    """The place in the file at which this answer says that it ends."""
    length = _length(answer)
    return None if length is None else length + (start if answer.status == 206 else 0)
