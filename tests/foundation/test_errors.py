"""Errors are one line and a status."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from foundation.errors import CheckFailed, InputError, run_command
from foundation.git import REPOSITORY

INTERRUPTED_IMPORT = ImportError("initialization failed")
INTERRUPTED_IMPORT.__cause__ = KeyboardInterrupt()  # as a module made with pybind11 raises it


@pytest.mark.parametrize(
    ("raised", "status", "message"),
    [
        (InputError("file.json:3: not\na JSON object"), 2, "error: file.json:3: not a JSON object\n"),
        (CheckFailed("a.bin differs"), 1, "error: a.bin differs\n"),
        (
            PermissionError(13, "Permission denied", "/data/x.0a1b2c3d.partial"),
            2,
            "error: /data/x: Permission denied; give this user the right to it, or name another path\n",
        ),
        (
            NotADirectoryError(20, "x", f"{__file__}/a/b"),
            2,
            f"error: {__file__}/a/b: {__file__} is a file; expected a folder\n",
        ),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (INTERRUPTED_IMPORT, 130, "error: interrupted\n"),
        (MemoryError(), 2, "error: not enough memory; give more, or --workers less\n"),
    ],
)
def test_errors_are_one_line_and_a_status(
    raised: BaseException, status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> int:
        raise raised

    with pytest.raises(SystemExit) as leaving:
        run_command(command)
    assert leaving.value.code == status
    assert capsys.readouterr().err == message


def test_an_old_python_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("foundation.errors.OLDEST_PYTHON", (9, 9))
    with pytest.raises(SystemExit) as leaving:
        run_command(lambda: 0)
    message = capsys.readouterr().err
    assert leaving.value.code == 2
    assert message.startswith(f"error: {sys.executable} is Python 3.") and message.endswith("(. .venv/bin/activate)\n")


def test_what_a_file_is_called_does_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> None:
        raise InputError("\x1b[31mred\udcff\u202e.txt: no such file")

    with pytest.raises(SystemExit):
        run_command(run)
    assert capsys.readouterr().err == "error: ?[31mred\\xff?.txt: no such file\n"


def test_an_error_of_an_open_file_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Reading a folder's handle fails as reading from a bad disk does: without a name."""

    def read(place: Path) -> None:
        os.read(os.open(place, os.O_RDONLY), 1)

    with pytest.raises(SystemExit) as leaving:
        run_command(lambda: read(tmp_path))
    assert leaving.value.code == 2
    assert capsys.readouterr().err == f"error: {tmp_path}: Is a directory\n"


def test_our_own_bugs_keep_their_traceback() -> None:
    def command() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_command(command)


def test_a_reader_that_has_gone_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    code = "from foundation.errors import run_command; run_command(lambda: print('x' * 100_000))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("problems", [["a>=2, found 1.9"], ["a>=2, found 1.9", "b>=1, not installed", "c", "d", "e"]])
def test_a_python_that_lacks_packages_is_told_in_one_line(
    problems: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("foundation.dependencies.missing", lambda extra: problems)

    def command() -> int:
        raise ModuleNotFoundError("No module named 'a.b'")

    with pytest.raises(SystemExit) as leaving:
        run_command(command)
    assert leaving.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {sys.executable} lacks {'; '.join(problems[:3])}")
    assert ("c and 2 more: activate the environment" in error) == (len(problems) > 1)
    assert len(error.splitlines()) == 1
