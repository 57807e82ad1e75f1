"""Command lines: each command is a frozen dataclass whose fields are its options and whose ``run`` does the work."""

import contextlib
import dataclasses
import gc
import io
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

import tyro

from stage.errors import InputError

Parsed = TypeVar("Parsed")
NARROWEST, WIDEST = 40, 1000
"""Columns of a terminal for which help and errors are laid out."""


class Command(Protocol):
    def run(self) -> int | None:
        """Do it; the result is the exit status, None for 0."""
        ...


def run_subcommand(package: str, description: str | None, commands: Mapping[str, type[Command]]) -> int | None:
    """Parse ``sys.argv`` as ``python -m PACKAGE COMMAND …`` and run the command; its exit status, None for 0."""

    def parse() -> Command:
        return tyro.extras.subcommand_cli_from_dict(
            dict(commands), prog=f"python -m {package}", description=description
        )

    command = one_line_usage_error(parse)
    _require_values(command)
    gc.freeze()  # what is imported stays to the end: at exit, searching it for garbage would take 0.05 s
    return command.run()


def _require_values(command: Any) -> None:
    """Raise InputError for an option that takes several values, has to be given, and was given none."""
    for option in dataclasses.fields(command):
        is_required = option.default is dataclasses.MISSING and option.default_factory is dataclasses.MISSING
        if is_required and getattr(command, option.name) == ():
            raise InputError(f"--{option.name.replace('_', '-')}: expected one value or more, got none (see --help)")


def one_line_usage_error(parse: Callable[[], Parsed]) -> Parsed:
    """Call tyro, and turn the box it draws around a usage error into one line."""
    captured = io.StringIO()
    try:
        with contextlib.redirect_stderr(captured), _readable_width():
            return parse()
    except SystemExit as leaving:
        if not leaving.code:  # --help
            raise
    raise InputError(f"{_without_box(captured.getvalue())} (see --help)")


@contextlib.contextmanager
def _readable_width() -> Iterator[None]:
    """Tyro breaks lines at the width of the terminal: at a few columns without end, and at millions it rules lines that
    take all memory. It has no option for it but the variable that it looks at."""
    if NARROWEST <= shutil.get_terminal_size().columns <= WIDEST:
        yield
        return
    told = os.environ.pop("COLUMNS", None)
    os.environ["COLUMNS"] = str(min(max(NARROWEST, shutil.get_terminal_size().columns), WIDEST))
    try:
        yield
    finally:
        del os.environ["COLUMNS"]
        if told is not None:
            os.environ["COLUMNS"] = told


def _without_box(drawn: str) -> str:
    """What a box of tyro's says: what is wrong, then what was expected, or perhaps meant."""
    top, *lines = drawn.splitlines() or [""]
    ruled = "\n".join(re.sub("[│╭╮╰╯]", " ", line)[2:].rstrip() for line in lines)
    wrong, *hints = re.split(r"\n *─+(?:\n|$)", ruled)
    if wrong.startswith("Missing from"):
        return f"missing: {', '.join(_options(wrong))}"
    said = [_in_a_line(wrong.partition("Got errors:")[0].removeprefix("Error parsing "))]
    title = _in_a_line(re.sub("[─╭╮]", " ", top))
    if title == "Missing subcommand":  # else the text says the same again
        said[0] = f"{title}: {said[0]}"
    for hint in hints:
        if hint.startswith("Argument helptext"):
            said.append(f"expected {', '.join(_options(hint)[:1])}")
        elif hint.startswith("Perhaps you meant"):
            said.append(f"perhaps you meant {', '.join(_options(hint))}")
        elif not hint.startswith("For full helptext"):
            said.append(_in_a_line(hint))
    return "; ".join(text for text in said if text)


def _options(section: str) -> list[str]:
    """The options that a section of the box lists, each indented by four."""
    return re.findall(r"^ {4}(\S.*)$", section, re.MULTILINE)


def _in_a_line(text: str) -> str:
    return " ".join(text.split()).rstrip(" .")  # a narrow box may break before the full stop
