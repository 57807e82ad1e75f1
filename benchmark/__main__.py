"""Run, evaluate and review the benchmark."""

import sys
from collections.abc import Sequence
from typing import NoReturn

from stage.cli import told_of_program
from stage.errors import run_command


def main(arguments: Sequence[str]) -> int | None:
    """``python -m benchmark ARGUMENTS``; returns the exit status."""
    from benchmark.commands.command_table import COMMANDS, parse

    status = told_of_program("benchmark", __doc__, {name: line for name, (_, line) in COMMANDS.items()}, arguments)
    if status is not None:
        return status
    command = parse(arguments)
    return 0 if command is None else command.run()


def console() -> NoReturn:
    """``python -m benchmark``, and the script ``benchmark`` of an installation."""
    run_command(lambda: main(sys.argv[1:]))


if __name__ == "__main__":
    console()
