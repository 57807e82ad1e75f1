"""An object in a bucket, ``s3://`` or ``gs://``, read by TensorStore in ranges; it finds the credentials."""

import re
from collections.abc import Iterator
from typing import Any

import tensorstore as ts

from stage.errors import InputError
from stage.remote.byte_source import AGAIN, ObjectFacts, Passing, changed
from stage.remote.object_address import ObjectAddress
from stage.remote.object_folder import FINAL, RETRIES_WITHIN, TIMEOUT_S, WITHOUT_VERSION

PIECE_BYTES = 1 << 23
BEYOND_THE_END = re.compile(r"(?:HTTP code |http_response_code=')416")
"""Of TensorStore's message. It says OUT_OF_RANGE of an answer that was cut, too, which is not the object's end."""
RANGE_SENT = re.compile(r'Content-Range header received: "bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18})"')
"""Of TensorStore's message on an answer of no bytes, by which some servers say the same."""
FELL_SHORT = "OUT_OF_RANGE"
LARGEST = 1 << 45
"""32 TiB. The largest objects that S3 and Google's storage take have 50 and 5 TiB."""


class BucketFile:
    """One object."""

    def __init__(self, address: ObjectAddress) -> None:
        self.address = address
        self._store = ts.KvStore.open(address.folder.kvstore(4, RETRIES_WITHIN)).result()

    def describe(self) -> ObjectFacts:
        """The size is found by asking for single bytes: TensorStore tells no other way."""
        version = self._version_of_byte(0)
        if version is None:
            empty = _answered(self._store.read(self.address.name), self.address)
            return ObjectFacts(len(empty.value), _hex(empty.stamp.generation))
        size, beyond = 1, 2
        while beyond <= LARGEST and self._has(beyond - 1, version):
            size, beyond = beyond, beyond * 2
        while beyond - size > 1:
            middle = (size + beyond) // 2
            if self._has(middle - 1, version):
                size = middle
            else:
                beyond = middle
        return ObjectFacts(size, version)

    def pieces(self, start: int, facts: ObjectFacts) -> Iterator[bytes]:
        """While one is used the next is on its way."""
        size = facts.bytes or 0
        waiting = self._asked(start, min(start + PIECE_BYTES, size)) if start < size else None
        while waiting is not None:
            end = min(start + PIECE_BYTES, size)
            following = self._asked(end, min(end + PIECE_BYTES, size)) if end < size else None
            try:
                found = _answered(waiting, self.address)
            except EOFError:
                raise changed(self.address, f"it no longer has {end:,} bytes") from None
            except Passing as error:
                if str(error).startswith(FELL_SHORT):  # of an answer that was cut, or of an object that is shorter now
                    self._require_version(facts)
                raise
            if _hex(found.stamp.generation) != facts.version:
                raise changed(self.address, "its ETag or generation is another one")
            if len(found.value) != end - start:
                raise Passing(f"{len(found.value):,} bytes instead of {end - start:,}")
            yield bytes(found.value)
            start, waiting = end, following

    def _asked(self, start: int, stop: int) -> Any:
        try:
            return self._store.read(self.address.name, byte_range=slice(start, stop))
        except TypeError:
            raise InputError(
                f"{self.address}: files are read from buckets from TensorStore 0.1.82 on; "
                "pip install --upgrade tensorstore"
            ) from None

    def _version_of_byte(self, place: int) -> str | None:
        """None where it has no such byte."""
        try:
            return _hex(_answered(self._asked(place, place + 1), self.address).stamp.generation)
        except EOFError:
            return None

    def _require_version(self, facts: ObjectFacts) -> None:
        """Raises Passing, too, where even that cannot be asked."""
        if self._version_of_byte(0) != facts.version:
            raise changed(self.address, "its ETag or generation is another one")

    def _has(self, place: int, version: str) -> bool:
        found = self._version_of_byte(place)
        if found not in (None, version):
            raise changed(self.address, "its ETag or generation is another one")
        return found is not None


def _hex(generation: bytes) -> str | None:
    return None if generation == WITHOUT_VERSION else generation.hex()


def _says_beyond_the_end(message: str) -> bool:
    sent = RANGE_SENT.search(message)
    return BEYOND_THE_END.search(message) is not None or (sent is not None and int(sent[1]) >= int(sent[2]))


def _answered(asked: Any, address: ObjectAddress) -> Any:
    """What has come. Raises EOFError where the object ends before, InputError where there is none, and Passing."""
    try:
        found = asked.result(timeout=TIMEOUT_S)
    except (ValueError, OSError, RuntimeError) as error:
        if _says_beyond_the_end(str(error)):
            raise EOFError from None
        reason = address.without_secrets(str(error).split("[")[0].strip() or repr(error)).splitlines()[0][:200]
        if reason.startswith(FINAL):
            raise InputError(f"{address}: cannot be read ({reason}); {AGAIN}") from None
        raise Passing(reason) from None
    if found.state != "value":
        raise InputError(f"{address}: no such object")
    return found
