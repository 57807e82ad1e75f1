"""Run, evaluate and review the benchmark."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from foundation.errors import run_command


def main(arguments: Sequence[str]) -> int | None:
    """``python -m benchmark ARGUMENTS``; returns the exit status."""
    from benchmark.commands.command_table import COMMANDS, completions, help_of, parse
    from foundation.cli import COMPLETION, answer_about_program
    from foundation.options.command_help import summary

    lines = {row.name: summary(row.options) for row in COMMANDS}
    if list(arguments[:2]) == COMPLETION:
        print(completions(), end="")
        return 0
    status = answer_about_program("benchmark", __doc__, lines, arguments)
    if status is not None:
        return status
    if (text := help_of(arguments)) is not None:
        print(text)
        return 0
    return parse(arguments).run()


def console() -> NoReturn:
    """``python -m benchmark``, and the script ``benchmark`` of an installation."""
    run_command(lambda: main(sys.argv[1:]))


if __name__ == "__main__":
    console()
