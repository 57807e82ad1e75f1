"""One process at a time in a folder."""

import multiprocessing
from pathlib import Path

import pytest

import stage.lock
from stage.errors import InputError
from stage.lock import only_one_in


def _hold(
    folder: Path, ready: "multiprocessing.synchronize.Event", release: "multiprocessing.synchronize.Event"
) -> None:
    with only_one_in(folder, "wait"):
        ready.set()
        release.wait(30)


def test_only_one_process_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = multiprocessing.get_context("fork")
    ready, release = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(tmp_path, ready, release))
    holder.start()
    assert ready.wait(30)
    monkeypatch.setattr(stage.lock, "PATIENCE_S", 0.3)
    with (
        pytest.raises(InputError, match="in use by another process; choose another"),
        only_one_in(tmp_path, "choose another folder"),
    ):
        pass
    monkeypatch.setattr(stage.lock, "PATIENCE_S", 30.0)
    release.set()
    with only_one_in(tmp_path, "choose another folder"):  # waits for the other one to end
        holder.join()
