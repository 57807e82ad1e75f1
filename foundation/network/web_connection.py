"""Connections to web servers: kept open between requests, by way of the environment's proxies.

No connection is made to a place that a redirect must not lead to: the server's IP address is looked at before.
"""

import base64
import functools
import http.client
import ipaddress
import socket
import ssl
import threading
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from foundation.network.object_store import SILENCE_S, AccessRefused

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Origin:
    """A web server: credentials for one are for no other."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def origin_of(parts: SplitResult) -> Origin:
    """Return the server of an address. Raises AccessRefused if it is not on the web."""
    try:
        port = parts.port
    except ValueError as error:
        raise AccessRefused("an address with a port that is no number") from error
    if parts.scheme not in PORTS or not parts.hostname:
        raise AccessRefused(f"an address of {parts.scheme[:20]}:, not of a web server")
    return Origin(parts.scheme, parts.hostname, port or PORTS[parts.scheme])


def is_inside(origin: Origin) -> bool:
    """Return whether a server is on this machine or its link, as far as its name says. Raises OSError."""
    return any(_is_inside(str(address[0])) for *_, address in _addresses(origin))


def _addresses(origin: Origin) -> list[Any]:
    return socket.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)


def _is_inside(text: str) -> bool:
    """Return whether an IP address is this machine's own or one of its link, where clouds keep credentials."""
    ip = ipaddress.ip_address(text.partition("%")[0])
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return ip.is_loopback or ip.is_link_local or ip.is_unspecified


def _require_outside(origin: Origin, address: str) -> None:
    if _is_inside(address):
        raise AccessRefused(f"it redirects to {origin}, on this machine or its link, which is not followed")


def basic_authorization(user: str, password: str) -> str:
    """Return the header that sends a user's name and password."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def proxy_of(origin: Origin) -> SplitResult | None:
    """Return the proxy that the environment names for a server (``https_proxy``, ``http_proxy``, ``no_proxy``)."""
    proxy = urllib.request.getproxies().get(origin.scheme)
    if not proxy or urllib.request.proxy_bypass(origin.host):
        return None
    return urlsplit(proxy if "://" in proxy else f"http://{proxy}")


def _authorization_of(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    return {"Proxy-Authorization": basic_authorization(unquote(proxy.username), unquote(proxy.password or ""))}


class Connection(http.client.HTTPConnection):
    """A connection to a web server or, by way of a proxy, to any."""

    def __init__(self, origin: Origin, *, may_be_inside: bool) -> None:
        """``may_be_inside``: whether the server may be on this machine or its link."""
        proxy = proxy_of(origin)
        host, port = (origin.host, origin.port) if proxy is None else (proxy.hostname or "", proxy.port or 80)
        super().__init__(host, port, timeout=SILENCE_S)
        self.origin, self.may_be_inside, self._proxy = origin, may_be_inside, proxy
        if proxy is not None and origin.scheme == "https":
            self.set_tunnel(origin.host, origin.port, _authorization_of(proxy))

    def headers_for_proxy(self) -> dict[str, str]:
        """Return the headers of a request that the proxy reads itself."""
        return {} if self._proxy is None or self.origin.scheme == "https" else _authorization_of(self._proxy)

    def connect(self) -> None:
        """Connect. Raises AccessRefused, before, if the server must not be on this machine or its link, and is."""
        if self._proxy is not None and not self.may_be_inside:
            self._require_outside_by_name()
        self.sock = self._connected()
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._proxy is not None and self.origin.scheme == "https":
            self._tunnel()  # type: ignore[attr-defined]  # as HTTPConnection itself does
        if self.origin.scheme == "https":
            self.sock = _tls().wrap_socket(self.sock, server_hostname=self.origin.host)

    def _require_outside_by_name(self) -> None:
        """Look up the name of a server behind the proxy; a name that only the proxy knows is left to it."""
        try:
            addresses = _addresses(self.origin)
        except OSError:
            return
        for *_, address in addresses:
            _require_outside(self.origin, str(address[0]))

    def _connected(self) -> socket.socket:
        """Return a socket that is connected to the first address that answers."""
        failure = OSError(f"{self.host}: has no address")
        for family, kind, protocol, _, address in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
            if self._proxy is None and not self.may_be_inside:
                _require_outside(self.origin, str(address[0]))
            plain = socket.socket(family, kind, protocol)
            try:
                plain.settimeout(SILENCE_S)
                plain.connect(address)
            except OSError as error:
                plain.close()
                failure = error
            else:
                return plain
        raise failure


@functools.cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


class Connections:
    """Connections to any number of servers. Threads may share it; each connection serves one request at a time."""

    def __init__(self) -> None:
        self._idle: dict[tuple[Origin, bool], list[Connection]] = {}
        self._lock = threading.Lock()

    def take(self, origin: Origin, *, may_be_inside: bool) -> tuple[Connection, bool]:
        """Return a connection, and whether it is new."""
        with self._lock:
            if idle := self._idle.get((origin, may_be_inside)):
                return idle.pop(), False
        return Connection(origin, may_be_inside=may_be_inside), True

    def give_back(self, connection: Connection) -> None:
        """Keep a connection whose answer was read to its end for further requests."""
        with self._lock:
            self._idle.setdefault((connection.origin, connection.may_be_inside), []).append(connection)
