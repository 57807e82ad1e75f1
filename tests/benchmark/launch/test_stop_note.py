"""The note of a run that stopped: written, read, removed."""

from pathlib import Path

import pytest

from benchmark.launch.stop_note import StopNote, read_stop_note, remove_stop_note, stop_note_path, write_stop_note


def test_note_is_read_back_until_it_is_removed(tmp_path: Path) -> None:
    note = StopNote("exit trigger", 7, saved=True)
    write_stop_note(tmp_path, note)
    assert read_stop_note(tmp_path) == note
    assert (tmp_path / "stopped.json").read_text() == '{"by": "exit trigger", "steps": 7, "saved": true}\n'
    remove_stop_note(tmp_path)
    remove_stop_note(tmp_path)
    assert read_stop_note(tmp_path) is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"by": "x"}', '{"by": "x", "steps": "1", "saved": true}'])
def test_what_is_no_note_is_none(content: str, tmp_path: Path) -> None:
    stop_note_path(tmp_path).write_text(content)
    assert read_stop_note(tmp_path) is None
