"""Errors a user can mend are one line on standard error and exit status 2; a check that ran and failed exits 1.

Anything else that is raised is a bug of ours and keeps its traceback.
"""

import faulthandler
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

SHOWN_PROBLEMS = 3


class InputError(Exception):
    """Bad input. The message is one line: it names what was got, where, what is expected, and how to mend it."""


class CheckFailed(Exception):
    """A check that really ran did not pass. The message names what differs."""


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's text, or its kind where it has no text."""
    return (str(error) or repr(error)).splitlines()[0]


def run_command(command: Callable[[], int | None]) -> NoReturn:
    """Run ``command`` and leave the process with its exit status (None counts as 0).

    Exit status: 2 for :class:`InputError`, for files that cannot be read or written, and where a package that the
    project asks for is not installed, 1 for :class:`CheckFailed`, 130 for Ctrl-C, as shells expect.
    """
    if not faulthandler.is_enabled():  # a crash in native code names the Python line
        faulthandler.enable(all_threads=False)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # file names need not be text
    try:
        status = command() or 0
        sys.stdout.flush()
    except InputError as error:
        status = _print_error(str(error), 2)
    except CheckFailed as error:
        status = _print_error(str(error), 1)
    except ImportError:
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
        where = _file_in_hand(error)
        status = _print_error(f"{where}: {error.strerror}" if where else f"{error.strerror}", 2)
    sys.exit(status)


def _file_in_hand(error: OSError) -> str | None:
    """The file that ``error`` names; else, as reads from an open file name none, the last path that the code at fault
    had in a variable."""
    if error.filename is not None and not isinstance(error.filename, int):
        return os.fsdecode(error.filename)
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        for value in frame.f_locals.values():
            if isinstance(value, Path):
                return str(value)
    return None


def _lacking_packages() -> str:
    """Raises the ImportError at hand again where nothing is missing: then it is a bug of ours."""
    from stage.dependencies import missing

    problems: Sequence[str] = missing(None)
    if not problems:
        raise  # called from an except clause
    more = f" and {len(problems) - SHOWN_PROBLEMS} more" if len(problems) > SHOWN_PROBLEMS else ""
    return (
        f"{sys.executable} lacks {'; '.join(problems[:SHOWN_PROBLEMS])}{more}: use .venv/bin/python, which "
        "./run_gpt3.sh makes, or pip install --requirement requirements.lock"
    )


def _print_error(message: str, status: int) -> int:
    print("error:", "".join(map(_shown, " ".join(message.split()))), file=sys.stderr, flush=True)
    return status


def _shown(letter: str) -> str:
    """File names may hold anything: a byte that is no UTF-8 is shown by its number, a control character is not."""
    if "\udc80" <= letter <= "\udcff":
        return f"\\x{ord(letter) - 0xDC00:02x}"
    return letter if letter.isprintable() else "?"
