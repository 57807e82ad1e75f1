"""Errors that a user can mend are one line on standard error and exit status 2; a check that ran and failed exits 1.

Any other exception is a bug of ours and keeps its traceback.
"""

from __future__ import annotations  # an old Python gets as far as run_command, which says so

import faulthandler
import gc
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

NEW_FILE = re.compile(r"\.[0-9a-f]{8}\.partial$")
"""End of the name of a file until it is whole (foundation/outputs/publish.py)."""
SHOWN_PROBLEMS = 3
OBJECTS_PER_SEARCH = 10_000
"""New objects between two searches for garbage. PyTorch's modules make 300,000: Python's searches, after each 700, take
a tenth of their import's time."""
OLDEST_PYTHON = (3, 11)
REMEDY = "activate the environment that ./run_gpt3.sh makes (. .venv/bin/activate)"


class InputError(Exception):
    """Bad input. The message is one line: it names the value, its place, the expected value, and how to mend it."""


class CheckFailed(Exception):
    """A check that really ran has failed. The message names the difference."""


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's text, or its type if it has no text."""
    return (str(error) or repr(error)).splitlines()[0]


def run_command(command: Callable[[], int | None]) -> NoReturn:
    """Run ``command`` and leave the process with its exit status (None counts as 0).

    Exit status: 2 for :class:`InputError`, for files that cannot be read or written, and for a required package that is
    not installed, 1 for :class:`CheckFailed`, 130 for Ctrl-C, as shells expect.
    """
    if sys.version_info < OLDEST_PYTHON:
        version = ".".join(map(str, sys.version_info[:2]))
        sys.exit(_print_error(f"{sys.executable} is Python {version}; Python 3.11 or newer is needed: {REMEDY}", 2))
    if not faulthandler.is_enabled():  # a crash in native code names the Python line
        faulthandler.enable(all_threads=False)
    gc.set_threshold(OBJECTS_PER_SEARCH)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # file names need not be text
    try:
        status = command() or 0
        sys.stdout.flush()
    except InputError as error:
        status = _print_error(str(error), 2)
    except CheckFailed as error:
        status = _print_error(str(error), 1)
    except ImportError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # Ctrl-C while a native module began
            status = _print_error("interrupted", 130)
        else:
            status = _print_error(_lacking_packages(), 2)
    except KeyboardInterrupt:
        status = _print_error("interrupted", 130)
    except BrokenPipeError:  # the reader of our output (head, less) has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status = 1
    except MemoryError:
        status = _print_error("not enough memory; give more, or --workers less", 2)
    except OSError as error:
        if error.errno is None:
            raise
        where, problem = _file_in_hand(error), str(error.strerror)
        if where and isinstance(error, NotADirectoryError):
            files = [path for path in Path(where).parents if path.is_file()]
            problem = f"{files[0]} is a file; expected a folder" if files else problem
        if isinstance(error, PermissionError):
            where = NEW_FILE.sub("", where or "") or None  # the name that the user gave
            problem += "; give this user the right to it, or name another path"
        status = _print_error(f"{where}: {problem}" if where else problem, 2)
    gc.freeze()  # the process ends: a search of PyTorch's modules for garbage would take another half a second
    sys.exit(status)


def _file_in_hand(error: OSError) -> str | None:
    """Return the file that ``error`` names, or else the last path in a variable of the code that failed.

    Errors of reads from an open file name none.
    """
    if error.filename is not None and not isinstance(error.filename, int):
        return os.fsdecode(error.filename)
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        for value in frame.f_locals.values():
            if isinstance(value, Path):
                return str(value)
    return None


def _lacking_packages() -> str:
    """Describe the missing packages; if none is missing, raise the current ImportError again, because it is a bug of
    ours."""
    from foundation.dependencies import missing

    problems: Sequence[str] = missing(None)
    if not problems:
        raise  # called from an except clause
    more = f" and {len(problems) - SHOWN_PROBLEMS} more" if len(problems) > SHOWN_PROBLEMS else ""
    return (
        f"{sys.executable} lacks {'; '.join(problems[:SHOWN_PROBLEMS])}{more}: {REMEDY}, or pip install "
        "--requirement requirements.lock"
    )


def _print_error(message: str, status: int) -> int:
    print("error:", "".join(map(_printable, " ".join(message.split()))), file=sys.stderr, flush=True)
    return status


def _printable(letter: str) -> str:
    """Return a character of a message in printable form: a byte that is no UTF-8 as its number, a control character as
    "?"."""
    if "\udc80" <= letter <= "\udcff":
        return f"\\x{ord(letter) - 0xDC00:02x}"
    return letter if letter.isprintable() else "?"
