"""Command lines: each command is a frozen dataclass whose fields are its options and whose ``run`` does the work."""

import contextlib
import dataclasses
import gc
import io
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import tyro

from stage.errors import InputError

Parsed = TypeVar("Parsed")


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
    drawn = io.StringIO()
    try:
        with contextlib.redirect_stderr(drawn):
            return parse()
    except SystemExit as leaving:
        if not leaving.code:  # --help
            raise
    inside = " ".join(drawn.getvalue().splitlines()[1:])  # the first line has the title, which says no more
    told = " ".join(re.sub("[╭╮╰╯│|]|[─-]{3,}", " ", inside).split())
    raise InputError(f"{told.partition(' For full helptext')[0]} (see --help)")
