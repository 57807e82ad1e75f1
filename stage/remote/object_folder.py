"""Reading objects whole, with retries and a bound on the rate, and noticing those that change.

Of every object that was read its size and version are noted (``version``: the store's ETag or generation), in a file,
so that a call that goes on from an earlier one knows them, too. An object that is read again must be the same; at the
end the store is asked for each whether it still is, which moves no data. A server without ETags cannot be asked: of
its objects the MD5 is noted, and compared when one is read again.
"""

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import tensorstore as ts

from stage.errors import InputError, first_line
from stage.remote.object_address import ObjectAddress
from stage.remote.patience import TRIES, RateLimit, pause_s

Decoded = TypeVar("Decoded")

DECODING_TRIES = 3
TIMEOUT_S = 900.0
"""For one object; TensorStore itself gives up where for a minute next to nothing comes."""
RETRIES_WITHIN = {"max_retries": 2, "initial_delay": "200ms", "max_delay": "2s"}
"""TensorStore's own, for each of our tries."""
FINAL = ("PERMISSION_DENIED", "UNAUTHENTICATED", "INVALID_ARGUMENT")
"""What trying again does not mend."""
WITHOUT_VERSION = b"\x10"
"""What TensorStore says of an object of a server that sends no ETag."""
CHECKS_AT_ONCE = 16


@dataclass(frozen=True)
class ObjectRecord:
    """An object as it was when it was first read."""

    key: str
    bytes: int
    version: str
    """Hexadecimal; ``md5:…`` of the content where the server tells none."""


class ObjectFolder:
    """Objects below an address. Threads may share it."""

    def __init__(
        self,
        address: ObjectAddress,
        records: Path,
        *,
        readers: int,
        bytes_per_s: float | None = None,
        others: Sequence[Path] = (),
        md5: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``records``: the file of what was read, by this call and those it goes on from; ``others``: likewise, by
        tasks that share the work. ``md5``: sums that the objects must have, by key; None: any content is taken.
        """
        self.address = address
        self._store = ts.KvStore.open(address.kvstore(readers, RETRIES_WITHIN)).result()
        self._limit, self._sleep = RateLimit(bytes_per_s, sleep), sleep
        self._records_path, self._lock = records, threading.Lock()
        self._records = {record.key: record for record in _read_records(records)}
        self._own, self._md5, self._shared = set(self._records), md5, bool(others)
        for path in others:
            for record in _read_records(path):
                if self._records.setdefault(record.key, record) != record:
                    raise self._changed(record.key, "since it was first read")

    def read(self, key: str, decode: Callable[[bytes], Decoded]) -> Decoded | None:
        """What ``decode`` makes of an object's content; None where there is no such object.

        Where it raises ValueError the object is read again: a connection that breaks can look like its end. Raises
        InputError, without secrets, where it cannot be had or decoded, or is not the one that was read before.
        """
        reason = ""
        for _ in range(DECODING_TRIES):
            found = self._try(key, lambda: self._store.read(key))
            if found.state != "value":
                if key in self._records:
                    raise InputError(f"{self.address}/{key}: gone since it was first read; {self._mend}")
                return None
            content = bytes(found.value)
            self._limit.spend(len(content))
            try:
                self._require_sum(key, content)
                decoded = decode(content)
            except ValueError as error:
                reason = first_line(error)[:200]
                continue
            self._note(ObjectRecord(key, len(content), _version(found.stamp.generation, content)))
            return decoded
        raise InputError(f"{self.address}/{key}: a chunk cannot be read ({reason}); it is damaged there")

    def require_unchanged(self, *, own: bool = False) -> None:
        """Ask for every object that was read, or that was by this call and those it goes on from, whether it is still
        the same. Raises InputError where one is not."""
        asked = [record for key, record in self._records.items() if not own or key in self._own]
        known = [record for record in asked if not record.version.startswith("md5:")]
        with ThreadPoolExecutor(CHECKS_AT_ONCE) as pool:
            for _ in pool.map(self._require_same, known):
                pass

    @property
    def cannot_be_asked(self) -> int:
        """Number of objects whose server tells no version."""
        return sum(record.version.startswith("md5:") for record in self._records.values())

    def _require_same(self, record: ObjectRecord) -> None:
        version = bytes.fromhex(record.version)
        found = self._try(record.key, lambda: self._store.read(record.key, if_not_equal=version))
        if found.state != "unspecified":
            raise self._changed(record.key, "while it was converted")

    def _changed(self, key: str, when: str) -> InputError:
        return InputError(f"{self.address}/{key}: changed {when}; {self._mend}")

    def _require_sum(self, key: str, content: bytes) -> None:
        """Raises ValueError where the content has not the sum it must have."""
        if self._md5 is None:
            return
        expected, found = self._md5.get(key), hashlib.md5(content, usedforsecurity=False).hexdigest()
        if expected != found:
            listed = "which the list has not" if expected is None else f"the list has {expected}"
            raise ValueError(f"MD5 {found}, {listed}")

    @property
    def _mend(self) -> str:
        others = " and those of the other tasks" if self._shared else ""
        return f"remove {self._records_path}{others} and run the command again with --force, it begins anew"

    def _note(self, record: ObjectRecord) -> None:
        with self._lock:
            known = self._records.get(record.key)
            if known not in (None, record):
                raise self._changed(record.key, "since it was first read")
            if record.key in self._own:
                return
            self._own.add(record.key)
            self._records[record.key] = record
            with self._records_path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(record)) + "\n")

    def _try(self, key: str, ask: Callable[[], Any]) -> Any:
        """What the store answers, asked several times where it fails."""
        for attempt in range(TRIES):
            try:
                return ask().result(timeout=TIMEOUT_S)
            except (ValueError, OSError, RuntimeError) as error:
                reason = self.address.without_secrets(str(error).split("[")[0].strip() or repr(error))
                if reason.startswith(FINAL) or attempt == TRIES - 1:
                    tried = "" if attempt == 0 else f" in {attempt + 1} tries"
                    raise InputError(
                        f"{self.address}/{key}: cannot be read{tried} ({reason[:300]}); check the address, the "
                        "credentials and the network, and run the command again, it goes on from here"
                    ) from None
            self._sleep(pause_s(attempt + 1))
        raise AssertionError("not reached")


def _version(generation: bytes, content: bytes) -> str:
    if generation != WITHOUT_VERSION:
        return generation.hex()
    return f"md5:{hashlib.md5(content, usedforsecurity=False).hexdigest()}"


def _read_records(path: Path) -> Iterable[ObjectRecord]:
    """A last line that a kill has cut short does not count. Raises InputError for a file of something else."""
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
        try:
            yield ObjectRecord(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise InputError(f"{path}: not the records of a conversion ({line[:60]!r}); move it away") from error
