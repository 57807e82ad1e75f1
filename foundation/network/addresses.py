"""Addresses of objects: ``gs://bucket/path``, ``s3://bucket/path``, ``http(s)://host/path``.

An address may hold secrets, a user's name and password or a signed query. Secrets are neither printed nor written.
"""

import re
from dataclasses import dataclass, replace
from urllib.parse import unquote, urlsplit, urlunsplit

from foundation.errors import InputError

SCHEMES = ("gs", "s3", "http", "https")
HIDDEN = "…"


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
    def is_web(self) -> bool:
        """Whether the object lies on a web server, and not in a bucket."""
        return urlsplit(self.url).scheme in ("http", "https")

    @property
    def name(self) -> str:
        """The last part of the path; its ending tells the kind of a file."""
        return urlsplit(self.url).path.rstrip("/").rpartition("/")[2]

    @property
    def credentials(self) -> tuple[str, str] | None:
        """The user's name and password in the address; None without them."""
        parts = urlsplit(self.url)
        return None if parts.username is None else (unquote(parts.username), unquote(parts.password or ""))

    def below(self, key: str) -> "Address":
        """Return the address of ``key`` in the folder that this address names; the query stays."""
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
