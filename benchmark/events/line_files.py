"""Sinks that are files of lines: ``events.jsonl``, and what the MLPerf log is written with."""

import json
import os
from pathlib import Path

from benchmark.events.event import Event
from stage.outputs.publish import sync_handle


class LineFile:
    """A file that grows by whole lines, each handed to the system at once."""

    def __init__(self, path: Path) -> None:
        """Append to what is there. A line that a killed process left unfinished is ended, so that the next one stands
        alone."""
        self._path = path
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        self._size = os.fstat(self._handle).st_size
        self._written = 0
        """Bytes of the line being written that are in the file."""
        self._end_line()

    def cut(self, size: int) -> None:
        """Keep the first ``size`` bytes of what is there; 0 starts afresh."""
        if size < self._size:
            os.ftruncate(self._handle, size)
            self._size = size
        self._written = 0
        self._end_line()

    def _end_line(self) -> None:
        if self._size and os.pread(self._handle, 1, self._size - 1) != b"\n":
            self.write(b"")

    @property
    def size(self) -> int:
        """Bytes of the whole lines."""
        return self._size

    def write(self, text: bytes) -> None:
        """Append a line. Raises OSError, as for a full disk; the same call again goes on where it stopped."""
        line = text + b"\n"
        while self._written < len(line):
            self._written += os.pwrite(self._handle, line[self._written :], self._size + self._written)
        self._size += len(line)
        self._written = 0

    def sync(self) -> None:
        """Wait until what is written is on the disk. Raises OSError where some of it may be lost."""
        sync_handle(self._handle, self._path)

    def close(self) -> None:
        os.close(self._handle)


class JsonLines:
    """``events.jsonl``: every event, one JSON object per line, after those of an interrupted run."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._file = LineFile(path)

    def write(self, event: Event) -> None:
        fields = {"time_ms": event.time_ms, "key": event.key, "kind": event.kind, "value": event.value}
        self._file.write(json.dumps({**fields, **event.metadata}).encode())

    def close(self) -> None:
        self._file.close()
