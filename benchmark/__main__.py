"""Run, evaluate and review the benchmark: python -m benchmark COMMAND --help"""

import sys
from collections.abc import Sequence
from typing import NoReturn

from stage.errors import run_command


def main(arguments: Sequence[str]) -> int | None:
    """``python -m benchmark ARGUMENTS``; returns the exit status."""
    from benchmark.commands.command_table import COMMANDS, parse

    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"{__doc__}\n")
        for name, (_, summary) in COMMANDS.items():
            print(f"  {name:17} {summary}")
        return 0 if arguments else 2
    return parse(arguments).run()


def console() -> NoReturn:
    """``python -m benchmark``, and the script ``benchmark`` of an installation."""
    run_command(lambda: main(sys.argv[1:]))


if __name__ == "__main__":
    console()
