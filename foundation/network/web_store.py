"""Objects on a web server, read by HTTP.

Redirects are followed without headers that tell one server of another: there is no Referer, and a user's name and
password go only to the server that the address names. A redirect from outside to this machine or its link is refused.
"""

import http.client
import re
import ssl
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from urllib.parse import SplitResult, quote, urljoin, urlsplit, urlunsplit

from foundation.network.addresses import Address
from foundation.network.object_store import BLOCK_BYTES, AccessDenied, AccessRefused, ObjectFacts
from foundation.network.web_connection import (
    Connection,
    Connections,
    Origin,
    basic_authorization,
    is_inside,
    origin_of,
    proxy_of,
)

MOST_REDIRECTS = 10
REDIRECTS, MISSING, DENIALS, BEYOND_END = (301, 302, 303, 307, 308), (404, 410), (401, 403, 407), 416
HEADERS = {"Accept": "*/*", "Accept-Encoding": "identity"}
IN_PATH, IN_QUERY = "/%!$&'()*+,;=:@~", "/%!$&'()*+,;=:@~?"
"""Characters that stay as they are, in addition to letters and digits."""


class WebStore:
    """Objects below a web address."""

    def __init__(self, address: Address) -> None:
        self._parts = _without_user(urlsplit(address.url))
        self._origin, self._credentials = origin_of(self._parts), address.credentials
        self._connections = Connections()
        self._begins_inside: bool | None = None

    def facts(self, key: str) -> ObjectFacts:
        try:
            answer = self._ask("HEAD", key)
        except FileNotFoundError:
            raise
        except OSError:  # a signed address is often for GET alone; the content is not read
            answer = self._ask("GET", key)
        answer.finish()
        return answer.facts(answer.length)

    def open(self, key: str, position: int) -> tuple[ObjectFacts, Iterator[bytes]]:
        answer = self._ask("GET", key, {"Range": f"bytes={position}-"} if position else {})
        first, total = answer.first_byte(position)
        return answer.facts(total), answer.blocks(position - first, total - first)

    def _ask(self, method: str, key: str, headers: Mapping[str, str] = HEADERS) -> "_Answer":
        """Return the answer to a request, which may come from where redirects lead."""
        path = f"{self._parts.path.rstrip('/')}/{quote(key, errors='surrogateescape')}" if key else self._parts.path
        parts = self._parts._replace(path=path)
        for _ in range(MOST_REDIRECTS + 1):
            origin = origin_of(parts)
            authorization = {}
            if origin == self._origin and self._credentials is not None:
                authorization = {"Authorization": basic_authorization(*self._credentials)}
            answer = self._send(method, origin, parts, {**HEADERS, **headers, **authorization})
            if answer.status not in REDIRECTS:
                return answer.checked()
            answer.finish()
            if not (target := answer.header("Location")):
                raise OSError(f"the server answers {answer.status} without a Location")
            parts = _without_user(urlsplit(urljoin(urlunsplit(parts), target)))
        raise AccessRefused(f"it redirects more than {MOST_REDIRECTS} times")

    def _send(self, method: str, origin: Origin, parts: SplitResult, headers: Mapping[str, str]) -> "_Answer":
        path = quote(parts.path or "/", IN_PATH, errors="surrogateescape")
        target = f"{path}?{quote(parts.query, IN_QUERY, errors='surrogateescape')}" if parts.query else path
        if origin.scheme == "http" and proxy_of(origin) is not None:
            target = f"{origin}{target}"
        may_be_inside = origin == self._origin or self._is_inside()
        while True:
            connection, is_new = self._connections.take(origin, may_be_inside=may_be_inside)
            try:
                connection.request(method, target, headers={**headers, **connection.headers_for_proxy()})
                return _Answer(connection.getresponse(), connection, self._connections)
            except (http.client.HTTPException, OSError) as error:
                connection.close()
                if is_new:
                    raise _as_os_error(error) from error  # else: the server had closed a connection that was idle

    def _is_inside(self) -> bool:
        """Return whether the server of the address is on this machine or its link."""
        if self._begins_inside is None:
            self._begins_inside = is_inside(self._origin)
        return self._begins_inside


class _Answer:
    """A server's answer, whose content has not been read."""

    def __init__(self, response: http.client.HTTPResponse, connection: Connection, connections: Connections) -> None:
        self._response, self._connection, self._connections = response, connection, connections
        self.status, self.length = response.status, response.length
        """The status, and the number of bytes that follow; None if the server does not say."""
        if self.length == 0 and (text := self.header("Content-Length")).isdigit():  # the answer to HEAD
            self.length = int(text)

    def header(self, name: str) -> str:
        return self._response.headers.get(name, "")

    def checked(self) -> "_Answer":
        """Return the answer if it has the object. Raises FileNotFoundError, AccessRefused or another OSError."""
        if self.status in (200, 206, BEYOND_END):
            return self
        self.finish()
        text = f"the server answers {self.status} {self._response.reason}"[:100]
        if self.status in MISSING:
            raise FileNotFoundError(text)
        raise AccessDenied(text) if self.status in DENIALS else OSError(text)

    def facts(self, total: int | None) -> ObjectFacts:
        if total is None:
            raise OSError("the server does not say how many bytes the object has")
        return ObjectFacts(total, self.header("ETag") or _iso_time(self.header("Last-Modified")))

    def first_byte(self, position: int) -> tuple[int, int]:
        """Return the position of the first byte that follows, 0 or ``position``, and the object's size.

        Raises OSError if the server sends something else.
        """
        content_range = re.fullmatch(r"bytes (?:([0-9]+)-([0-9]+)|\*)/([0-9]+)", self.header("Content-Range"))
        first, last, total = (int(number or -1) for number in content_range.groups()) if content_range else (-1, -1, -1)
        if self.status == BEYOND_END and total == position:
            return position, total
        if self.status == 206 and (first, last) == (position, total - 1):
            return position, total
        if self.status == 200 and self.length is not None:
            return 0, self.length
        self._connection.close()
        raise OSError(f"the server answers {self.status}, but not with the bytes from {position:,} on")

    def blocks(self, skipped: int, length: int) -> Iterator[bytes]:
        """Yield the content's ``length`` bytes without the first ``skipped``. Raises OSError if it breaks off."""
        received = 0
        try:
            while received < length and (block := self._response.read(BLOCK_BYTES)):
                received += len(block)
                if received > skipped:
                    yield block[max(0, len(block) - (received - skipped)) :]
        except http.client.HTTPException as error:
            raise _as_os_error(error) from error
        finally:
            if received < length:
                self._connection.close()
        if received < length:
            raise OSError(f"the connection was closed after {received:,} of {length:,} bytes")
        self.finish()

    def finish(self) -> None:
        """Make the connection free for the next request; close it if more than a little of its content is left."""
        if self._response.length is not None and self._response.length <= MOST_DISCARDED_BYTES:
            self._response.read()
        if self._response.isclosed() and not self._response.will_close:
            self._connections.give_back(self._connection)
        else:
            self._connection.close()


MOST_DISCARDED_BYTES = 1 << 16


def _as_os_error(error: Exception) -> OSError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return AccessRefused(f"its certificate is not valid: {error.verify_message}")
    return error if isinstance(error, OSError) else OSError(f"{type(error).__name__} {error}")


def _without_user(parts: SplitResult) -> SplitResult:
    return parts._replace(netloc=parts.netloc.rpartition("@")[2])


def _iso_time(header: str) -> str:
    """Return the time of an HTTP header in ISO 8601; nothing for a header that is no time."""
    try:
        return parsedate_to_datetime(header).isoformat()
    except (TypeError, ValueError):
        return ""
