"""The courtesy lock: it tells the second process, and keeps nobody out where a file system has no locks."""

import errno
import fcntl
import multiprocessing
import os
from pathlib import Path

import pytest

from foundation.errors import InputError
from foundation.outputs import lock
from foundation.outputs.lock import only_one_in


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "PATIENCE_S", 0.1)


def test_the_second_is_told(tmp_path: Path) -> None:
    with only_one_in(tmp_path, "choose another --run-dir"):
        child = multiprocessing.get_context("fork").Process(target=_must_be_refused, args=(tmp_path,))
        child.start()
        child.join()
        assert child.exitcode == 0
    with only_one_in(tmp_path, ""):
        pass


def _must_be_refused(folder: Path) -> None:
    with (
        pytest.raises(InputError, match="in use by another process; choose another --run-dir"),
        only_one_in(folder, "choose another --run-dir"),
    ):
        pass


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK])
def test_a_file_system_without_locks_keeps_nobody_out(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with only_one_in(tmp_path, ""), only_one_in(tmp_path, ""):
        pass
