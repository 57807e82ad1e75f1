"""Files of lines: the sink ``events.jsonl``, and the file that the MLPerf log is written with."""

import json
import os
from collections.abc import Callable
from pathlib import Path

from benchmark.run_record.events.event import Event
from foundation.outputs.publish import sync_handle


class LineFile:
    """A file that grows by whole lines, each handed to the system at once."""

    def __init__(self, path: Path, require_lease: Callable[[], object] = lambda: None) -> None:
        """Append to the existing file. If a killed process left an unfinished line, end it, so that the next one stands
        alone. ``require_lease``: raises OSError while this process may not write."""
        self._path, self._require_lease = path, require_lease
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        self.size = os.fstat(self._handle).st_size
        """Size of the whole lines in bytes."""
        self.cut(self.size)

    def cut(self, size: int) -> None:
        """Keep the first ``size`` bytes of the existing file; 0 starts afresh."""
        self._require_lease()
        self.size = min(size, self.size)
        os.ftruncate(self._handle, self.size)
        if self.size and os.pread(self._handle, 1, self.size - 1) != b"\n":
            self.write(b"")

    def write(self, text: bytes) -> None:
        """Append a line. Raises OSError, for example for a full disk; the same call again overwrites the part that was
        written."""
        self._require_lease()
        line, count = text + b"\n", 0
        while count < len(line):
            count += os.pwrite(self._handle, line[count:], self.size + count)
        self.size += len(line)

    def sync(self) -> None:
        """Wait until the written lines are on the disk. Raises OSError if some of them may be lost."""
        sync_handle(self._handle, self._path)

    def close(self) -> None:
        os.close(self._handle)


class JsonLines:
    """``events.jsonl``: every event as one JSON object per line, appended to those of an interrupted run."""

    def __init__(self, path: Path, require_lease: Callable[[], object] = lambda: None) -> None:
        self.name = path.name
        self._file = LineFile(path, require_lease)

    def write(self, event: Event) -> None:
        fields = {"time_ms": event.time_ms, "key": event.key, "kind": event.kind, "value": event.value}
        self._file.write(json.dumps({**fields, **event.metadata}).encode())

    def close(self) -> None:
        self._file.close()
