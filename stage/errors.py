"""Errors a user can mend are one line on standard error and exit status 2; a check that ran and failed exits 1.

Anything else that is raised is a bug of ours and keeps its traceback.
"""

import faulthandler
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

SHOWN_PROBLEMS = 3
NO_THREAD = "can't start new thread"
"""In Python's words."""
LIMITS = "(ulimit -u and -v, or the machine's); give more, or --workers less"
LONGEST_MESSAGE = 1200
"""Characters; names of files and what is quoted of them may be of any length."""


class InputError(Exception):
    """Bad input. The message is one line: what was got, where, what is expected, how to mend it."""


class CheckFailed(Exception):
    """A check that really ran did not pass. The message names what differs."""


def first_line(error: BaseException) -> str:
    """Of what a library says; its kind where it says nothing."""
    return (str(error) or repr(error)).splitlines()[0]


def run_command(command: Callable[[], int | None]) -> NoReturn:
    """Run ``command`` and leave the process with its exit status (None counts as 0).

    Exit status: 2 for :class:`InputError`, for files that cannot be read or written, and where a package that the
    project asks for is not installed, 1 for :class:`CheckFailed`, 130 for Ctrl-C, as shells expect.
    """
    _prepare_streams()
    status = _status_of(command)
    try:
        sys.stdout.flush()
    except OSError:  # told already, and Python would try it again
        _print_nothing_more(1)
    sys.exit(status)


def _status_of(command: Callable[[], int | None]) -> int:
    try:
        status = _called(command)
        sys.stdout.flush()
    except InputError as error:
        status = _print_error(str(error), 2)
    except CheckFailed as error:
        status = _print_error(str(error), 1)
    except ImportError:
        from stage.dependencies import missing  # here, for what it imports takes longer than all of this module

        problems = missing(None)
        if not problems:
            raise
        status = _print_error(_which_python(problems), 2)
    except KeyboardInterrupt:
        status = _print_error("interrupted", 130)
    except BrokenPipeError:  # the reader of our output (head, less) has gone
        _print_nothing_more(1)
        status = 1
    except MemoryError:
        status = _print_error(f"not enough memory {LIMITS}", 2)
    except RuntimeError as error:
        if str(error) != NO_THREAD:
            raise
        status = _print_error(f"{error} {LIMITS}", 2)
    except OSError as error:
        if error.filename is None and error.errno is None:
            raise
        nameless = error.filename is None or isinstance(error.filename, int)
        where = _file_in_hand(error) if nameless else error.filename
        status = _print_error(f"{'' if where is None else f'{where}: '}{error.strerror or error}", 2)
    return status


def _called(command: Callable[[], int | None]) -> int:
    try:
        return command() or 0
    except SystemExit as leaving:  # of --help, whose text has to be written, too
        if not isinstance(leaving.code, int | None):
            raise
        return leaving.code or 0


def _prepare_streams() -> None:
    """Standard streams that a program can rely on."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:  # closed (>&-): the next file would get its number, and what libraries print there
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, io.TextIOWrapper(io.FileIO(number, "w" if number else "r", closefd=False)))
    if not faulthandler.is_enabled():  # a signal in native code has a word
        faulthandler.enable(sys.__stderr__ or sys.stderr, all_threads=False)
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        raw = _StandardOutput(1, "w", closefd=False)
        sys.stdout = io.TextIOWrapper(
            raw if sys.stdout.write_through else io.BufferedWriter(raw),
            encoding=sys.stdout.encoding,
            line_buffering=sys.stdout.line_buffering,
            write_through=sys.stdout.write_through,
        )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names of files need not be text, nor of this locale
            stream.reconfigure(errors="backslashreplace")


class _StandardOutput(io.FileIO):
    """Of which an error says so."""

    def write(self, data: "Buffer", /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, "standard output") from None


def _print_nothing_more(number: int) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def _file_in_hand(error: BaseException) -> str | None:
    """The file that was read or written where ``error`` was raised: reading from an open file fails without a name."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        for value in frame.f_locals.values():
            found = getattr(value, "name", None) if isinstance(value, io.IOBase) else value
            if isinstance(found, Path) or (found is not value and isinstance(found, str)):
                return os.fspath(found)
    return None


def _which_python(problems: Sequence[str]) -> str:
    """What to do where this Python lacks packages; ``problems``: what is wrong with each."""
    more = f" and {len(problems) - SHOWN_PROBLEMS} more" if len(problems) > SHOWN_PROBLEMS else ""
    return (
        f"{sys.executable or 'this Python'} lacks {'; '.join(problems[:SHOWN_PROBLEMS])}{more}: use "
        ".venv/bin/python, which ./run_gpt3.sh makes, or pip install --requirement requirements.lock"
    )


def _print_error(message: str, status: int) -> int:
    line = _shortened(" ".join(message.split()))
    plain = "".join(letter if letter.isprintable() else _harmless(letter) for letter in line)
    try:
        print(f"error: {plain}", file=sys.stderr, flush=True)
    except OSError:  # nobody can be told, but by the status
        _print_nothing_more(2)
    return status


def _shortened(message: str) -> str:
    if len(message) <= LONGEST_MESSAGE:
        return message
    return f"{message[: LONGEST_MESSAGE // 2]} … {message[-LONGEST_MESSAGE // 2 :]}"


def _harmless(letter: str) -> str:
    """Names of files may hold anything: a byte that is no UTF-8 is shown by its number, a control character is not."""
    return f"\\x{ord(letter) - 0xDC00:02x}" if "\udc80" <= letter <= "\udcff" else "?"
