"""Addresses of objects and folders of them: ``gs://bucket/path``, ``s3://bucket/path``, ``http(s)://host/path``.

Credentials are those of the usual chains (environment, profiles, the machine's role; GOOGLE_APPLICATION_CREDENTIALS
and gcloud's), which TensorStore looks up itself. What an address holds of secrets, a user's name and password or a
query, is kept out of all that is printed or written.
"""

import re
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from stage.errors import InputError

SCHEMES = ("gs", "s3", "http", "https")
BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]", re.ASCII)
HIDDEN = "…"


@dataclass(frozen=True)
class ObjectAddress:
    """An object, or a folder of them."""

    scheme: str
    host: str
    """The bucket, or host and port."""
    path: str
    """Without slashes at its ends."""
    query: str
    """Of a web address, such as a signature."""
    user: str
    """USER:PASSWORD of a web address."""
    endpoint: str | None
    """Of another S3 server than Amazon's."""

    def __str__(self) -> str:
        """For messages and manifests: without secrets."""
        return f"{self.scheme}://{self.host}/{self.path}"

    def without_secrets(self, text: str) -> str:
        """What a library says, which may have the whole address in it."""
        secrets = [self.query, self.user, *self.user.split(":"), *re.split("[&;]", self.query)]
        for secret in sorted(filter(None, secrets), key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text

    @property
    def folder(self) -> "ObjectAddress":
        """Of an object's address."""
        return replace(self, path=self.path.rpartition("/")[0])

    @property
    def name(self) -> str:
        """Of an object's address, without folders."""
        return self.path.rpartition("/")[2]

    def kvstore(self, readers: int, retries: dict[str, Any]) -> dict[str, Any]:
        """TensorStore's description of it."""
        limit = {"limit": readers}
        folder = f"{self.path}/" if self.path else ""
        if self.scheme == "gs":
            context = {"gcs_request_concurrency": limit, "gcs_request_retries": retries}
            return {"driver": "gcs", "bucket": self.host, "path": folder, "context": context}
        if self.scheme == "s3":
            context = {"s3_request_concurrency": limit, "s3_request_retries": retries}
            where = {} if self.endpoint is None else {"endpoint": self.endpoint}
            return {"driver": "s3", "bucket": self.host, "path": folder, "context": context, **where}
        context = {"http_request_concurrency": limit, "http_request_retries": retries}
        user, query = f"{self.user}@" if self.user else "", f"?{self.query}" if self.query else ""
        return {"driver": "http", "base_url": f"{self.scheme}://{user}{self.host}/{folder}{query}", "context": context}


def is_address(text: str) -> bool:
    """Whether it names something elsewhere: what has ``://`` in it is no local folder."""
    return "://" in text


def parse_address(text: str, endpoint: str | None = None) -> ObjectAddress:
    """Read an address; ``endpoint`` is the one of ``--endpoint-url``. Raises InputError, without its secrets."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise InputError(f"--input: not an address that can be read ({error})") from error
    scheme, host = parts.scheme.lower(), parts.hostname or ""
    user, _, _ = parts.netloc.rpartition("@")
    if scheme not in SCHEMES:
        raise InputError(f"--input {scheme}://{HIDDEN}: expected something local, gs://, s3://, http:// or https://")
    is_bucket = scheme in ("gs", "s3")
    if is_bucket and (not BUCKET.fullmatch(host) or port is not None or user or parts.query or parts.fragment):
        raise InputError(f"--input {scheme}://{host}{HIDDEN}: expected {scheme}://BUCKET/PATH and nothing besides")
    if not host or parts.fragment:
        raise InputError(f"--input {scheme}://{host}{HIDDEN}: expected {scheme}://HOST/PATH")
    if endpoint is not None and (scheme != "s3" or not re.match(r"https?://[^/@?#]+/?$", endpoint)):
        raise InputError("--endpoint-url: expected http(s)://HOST, and an --input of s3://BUCKET/PATH")
    host = f"[{host}]" if ":" in host else host  # IPv6
    where = host if port is None else f"{host}:{port}"
    path = parts.path.strip("/")
    return ObjectAddress(scheme, where, path, parts.query, user, endpoint.rstrip("/") if endpoint else None)
