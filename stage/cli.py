"""Command lines: each command is a frozen dataclass whose fields are its options and whose ``run`` does the work."""

import contextlib
import dataclasses
import gc
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

import tyro

from stage.errors import InputError

Parsed = TypeVar("Parsed")
WIDE = "1000"
"""Columns for which a usage error is laid out, so that no line of it is broken."""


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
    gc.freeze()  # all imports stay to the end: at exit, searching them for garbage would take 0.05 s
    return command.run()


def _require_values(command: Any) -> None:
    """Raise InputError for an option that takes several values, has to be given, and was given none."""
    for option in dataclasses.fields(command):
        is_required = option.default is dataclasses.MISSING and option.default_factory is dataclasses.MISSING
        if is_required and getattr(command, option.name) == ():
            raise InputError(f"--{option.name.replace('_', '-')}: expected one value or more, got none (see --help)")


def one_line_usage_error(parse: Callable[[], Parsed]) -> Parsed:
    """Call tyro, and raise the usage error that it would draw in a box as an InputError of one line."""
    captured = io.StringIO()
    try:
        with contextlib.redirect_stderr(captured), _wide_unless_help():
            return parse()
    except SystemExit as leaving:
        if not leaving.code:  # --help
            raise
    raise InputError(f"{_in_a_line(captured.getvalue())} (see --help)")


@contextlib.contextmanager
def _wide_unless_help() -> Iterator[None]:
    """Tyro lays out what it prints for COLUMNS, and has no option for it."""
    told = os.environ.get("COLUMNS")
    if not {"-h", "--help"} & set(sys.argv):
        os.environ["COLUMNS"] = WIDE
    try:
        yield
    finally:
        os.environ.pop("COLUMNS", None)
        if told is not None:
            os.environ["COLUMNS"] = told


def _in_a_line(drawn: str) -> str:
    """Return what a box of tyro's says: the error, then the options that are missing, expected or perhaps meant."""
    inside = [re.sub("^[│|]|[│|]$", " ", line)[2:].rstrip() for line in drawn.splitlines()[1:-1]]
    wrong, *hints = re.split(r"\n *[─-]{9,}\n", "\n".join(inside))  # a terminal without Unicode gets other rules
    first = wrong.strip().splitlines()[0].removeprefix("Error parsing ").rstrip(".")
    told = [] if first.startswith("Missing from") else [first]
    for heading, part in (("missing: ", wrong), *(("", hint) for hint in hints)):
        options = re.findall(r"^ {4}(\S.*)$", part, re.MULTILINE)
        if part.startswith("Perhaps you meant"):
            heading = "perhaps you meant "
        elif part.startswith("Argument helptext"):
            heading, options = "expected ", options[:1]
        elif not part.startswith("Missing from"):
            options = [part.strip()] if part.startswith("Available") else []
        if options:
            told.append(heading + ", ".join(options))
    return "; ".join(told)
