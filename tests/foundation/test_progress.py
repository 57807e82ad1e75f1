"""Progress of long work, where it does not go to a terminal, and on one."""

import os
import pty
import re
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from foundation import progress as module
from foundation.progress import progress


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    return clock


def test_a_plain_line_every_so_often(seconds: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with progress("read", 4e9, "bytes", files=40) as advance:
        advance(1e9, files=10)
        assert capsys.readouterr().err == ""
        seconds[0] = 10.0
        advance.spent("reading", 3.0)
        advance.spent("writing", 1.0)
        advance(1e9, files=10)
        expected = "read: 2.00 of 4.00 GB (50 %), 20 of 40 files, 200 MB/s, 10 s left, limited by reading (75 % of"
        assert capsys.readouterr().err == f"{expected} the time)\n"
        seconds[0] = 19.9
        advance(1e9)
        seconds[0] = 20.0
        advance(1e9)
    assert capsys.readouterr().err.startswith("read: 4.00 of 4.00 GB (100 %), 20 of 40 files, 2")


def test_what_was_done_before_does_not_count_in_the_rate(
    seconds: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with progress("take", 100, "documents") as advance:
        advance.done_before(50)
        seconds[0] = 10.0
        advance(10)
    assert capsys.readouterr().err == "take: 60 of 100 documents (60 %), 1.0 documents/s, 40 s left\n"


def test_on_a_terminal_the_line_stands_beside_a_bar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "SECONDS_BETWEEN_CHANGES", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with progress("read", 4, "files") as advance:
            advance(1)
            advance(1)
    shown = _all_of(ours)
    assert "read" in shown
    assert re.search(r"50 %, [0-9.,]+ files/s, .* left, 2 of 4 files", shown)


def _all_of(terminal: int) -> str:
    """What was written to a pseudo-terminal whose other end is closed: it comes in pieces, and then an error."""
    pieces = []
    with suppress(OSError), os.fdopen(terminal, "rb", buffering=0) as stream:
        while piece := stream.read(1 << 16):
            pieces.append(piece)
    return b"".join(pieces).decode()


def test_a_narrow_line_begins_with_share_rate_and_time() -> None:
    """80 columns leave 50 for it, and the end of a longer line is cut off."""
    meter = module.Meter(2.4e12, "bytes", 123_520, lambda meter: None, 1e9)
    meter(1.2e11, files=6_000)
    words = re.fullmatch(
        r"(5 %, [0-9.,]+ MB/s, .* left), 0\.12 of 2\.40 TB, 6,000 of 123,520 files", meter.line(narrow=True)
    )
    assert words is not None
    assert len(words[1]) <= 50
