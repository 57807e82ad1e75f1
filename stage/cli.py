"""Command lines: each command is a frozen dataclass whose fields are its options and whose ``run`` does the work."""

import contextlib
import gc
import io
import re
from collections.abc import Callable, Mapping
from typing import NoReturn, Protocol, TypeVar

import tyro

from stage.errors import InputError, run_command

Parsed = TypeVar("Parsed")


class Command(Protocol):
    def run(self) -> int | None:
        """Do it; the result is the exit status, None for 0."""
        ...


def main(package: str, description: str | None, commands: Mapping[str, type[Command]]) -> NoReturn:
    """Parse ``sys.argv`` as ``python -m PACKAGE COMMAND …``, run the command and exit."""

    def parse() -> Command:
        return tyro.extras.subcommand_cli_from_dict(
            dict(commands), prog=f"python -m {package}", description=description
        )

    def run() -> int | None:
        command = one_line_usage_error(parse)
        gc.freeze()  # what is imported stays to the end: at exit, searching it for garbage would take 0.05 s
        return command.run()

    run_command(run)


def one_line_usage_error(parse: Callable[[], Parsed]) -> Parsed:
    """Call tyro, and turn the box it draws around a usage error into one line."""
    captured = io.StringIO()
    try:
        with contextlib.redirect_stderr(captured):
            return parse()
    except SystemExit as leaving:
        if not leaving.code:  # --help
            raise
    message = captured.getvalue().split("For full helptext")[0].split("Argument helptext")[0]
    raise InputError(f"{' '.join(re.sub('[─│╭╮╰╯]+', ' ', message).split())} (see --help)")
