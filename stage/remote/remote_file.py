"""An object to be read from beginning to end, by whichever way its address asks for."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Self

from stage.remote.byte_source import ByteSource, ObjectFacts, described, read_patiently
from stage.remote.object_address import ObjectAddress
from stage.remote.patience import RateLimit


@dataclass(frozen=True)
class RemoteFile:
    """Named in messages and manifests without secrets; its last part tells what is in it, as a file's name does."""

    address: ObjectAddress
    bytes_per_s: float | None = None
    """At most, on average."""
    facts: ObjectFacts = field(default=ObjectFacts(None, None), compare=False)
    """As its server has described it; what it reads must be of that."""

    def __str__(self) -> str:
        return str(self.address)

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.address.path).suffix

    @property
    def suffixes(self) -> list[str]:
        return PurePosixPath(self.address.path).suffixes

    def described(self) -> Self:
        """The same with its facts as they are now. Raises InputError where it cannot be had."""
        return replace(self, facts=described(self._source()))

    def read(self, sleep: Callable[[float], None] = time.sleep) -> Iterator[bytes]:
        """Its bytes, in order. Raises InputError where they cannot be had or are no longer those of its facts."""
        return read_patiently(self._source(), self.facts, RateLimit(self.bytes_per_s), sleep)

    def _source(self) -> ByteSource:
        if self.address.scheme in ("http", "https"):
            from stage.remote.web_file import WebFile  # only what is needed of these is imported, by whoever asks

            return WebFile(self.address)
        from stage.remote.bucket_file import BucketFile  # TensorStore takes half a second to import

        return BucketFile(self.address)
