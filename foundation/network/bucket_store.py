"""Objects in buckets of S3 and Google Cloud Storage, read by obstore.

Credentials come from the environment or from the machine's role; without them, a bucket is read anonymously.
"""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from foundation.errors import InputError, first_line
from foundation.network.addresses import Address
from foundation.network.object_store import BLOCK_BYTES, SILENCE_S, AccessDenied, ObjectFacts

CREDENTIALS = {
    "s3": ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
    "gs": ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY"),
}
"""Variables that name credentials, by scheme."""
METADATA_SERVERS = {"s3": "169.254.169.254", "gs": "metadata.google.internal"}
"""Servers from which a machine in the cloud gets the credentials of its role, by scheme."""


class BucketStore:
    """Objects below an address in a bucket."""

    def __init__(self, address: Address) -> None:
        """Raises InputError if the credentials in the environment cannot be read."""
        from obstore.exceptions import BaseError
        from obstore.store import from_url

        scheme = urlsplit(address.url).scheme
        client: Any = {"allow_http": True, "read_timeout": f"{SILENCE_S}s", "timeout": "1h"}
        once: Any = {"max_retries": 0}  # the caller tries again, and says so
        endpoint: Any = {"endpoint": address.endpoint_url} if address.endpoint_url else {}
        try:
            self._store = from_url(
                address.url,
                client_options=client,
                retry_config=once,
                skip_signature=not _has_credentials(scheme),
                **endpoint,
            )
        except BaseError as error:  # such as a variable that names no file of credentials
            raise InputError(f"{address}: {first_line(error)[:300]}; check the credentials") from error

    def facts(self, key: str) -> ObjectFacts:
        import obstore
        from obstore.exceptions import BaseError

        try:
            return _facts(obstore.head(self._store, key))
        except BaseError as error:
            raise _translated(error) from error

    def open(self, key: str, position: int) -> tuple[ObjectFacts, Iterator[bytes]]:
        import obstore
        from obstore.exceptions import BaseError, NotSupportedError

        skipped = 0
        try:
            try:
                answer = obstore.get(self._store, key, options={"range": {"offset": position}} if position else {})
            except NotSupportedError:  # a server without ranges
                answer, skipped = obstore.get(self._store, key), position
        except BaseError as error:
            raise _translated(error) from error
        return _facts(answer.meta), _behind(skipped, answer.stream(min_chunk_size=BLOCK_BYTES))


def _behind(skipped: int, buffers: Any) -> Iterator[bytes]:
    """Yield the bytes behind the first ``skipped``."""
    from obstore.exceptions import BaseError

    try:
        for buffer in buffers:
            block = bytes(buffer)
            if skipped < len(block):
                yield block[skipped:]
            skipped = max(0, skipped - len(block))
    except BaseError as error:
        raise _translated(error) from error


def _translated(error: Exception) -> OSError:
    """Return the error of an object store for one of obstore's."""
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

    if isinstance(error, FileNotFoundError):
        return error
    is_denied = isinstance(error, (PermissionDeniedError, UnauthenticatedError))
    return (AccessDenied if is_denied else OSError)(first_line(error))


def _facts(meta: Any) -> ObjectFacts:
    when = meta["last_modified"]
    time_text = when.isoformat() if when.timestamp() else ""  # obstore says 1970 where the server says nothing
    return ObjectFacts(meta["size"], meta["e_tag"] or meta["version"] or time_text)


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
