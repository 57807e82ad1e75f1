"""Progress of long work, where it does not go to a terminal."""

import pytest

from stage import progress as module
from stage.progress import progress


def test_a_plain_line_every_so_often(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    seconds = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: seconds[0])
    with progress("read", 4000, "bytes") as advance:
        advance(1000)
        assert capsys.readouterr().err == ""
        seconds[0] = 10.0
        advance(1000)
        assert capsys.readouterr().err == "read: 2,000 of 4,000 bytes (50 %)\n"
        seconds[0] = 19.9
        advance(1000)
        seconds[0] = 20.0
        advance(1000)
    assert capsys.readouterr().err == "read: 4,000 of 4,000 bytes (100 %)\n"


def test_nothing_to_do_is_all_done(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0.0)
    with progress("read", 0, "bytes") as advance:
        advance(0)
    assert capsys.readouterr().err == "read: 0 of 0 bytes (100 %)\n"
