"""``BENCHMARK [--system NAME] [overrides]`` to a run's configuration: named data first, then single fields."""

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import tyro

from benchmark.config.benchmarks import BENCHMARKS
from benchmark.config.run_config import RunConfig
from benchmark.config.systems import DEFAULT_SYSTEM, SYSTEMS
from stage.cli import one_line_usage_error
from stage.errors import InputError

FLAG = "--system"
Parsed = TypeVar("Parsed")


def parse_run(command: str, arguments: Sequence[str], description: str, wrap: Callable[[RunConfig], Parsed]) -> Parsed:
    """What ``python -m benchmark COMMAND ARGUMENTS`` asks for.

    ``wrap`` makes the command's own dataclass, which may have more options, of the default configuration. Raises
    InputError for an unknown benchmark, system or option, and for values that do not fit together.
    """
    prog = f"python -m benchmark {command}"
    if not arguments or arguments[0].startswith("-"):
        if {"-h", "--help"} & set(arguments):
            print(f"usage: {prog} {{{','.join(BENCHMARKS)}}} [--system {{{','.join(SYSTEMS)}}}] [overrides]\n")
            print(f"{description}\n\nThe overrides are listed by: {prog} {next(iter(BENCHMARKS))} --help")
            raise SystemExit(0)
        raise InputError(f"{prog}: which benchmark? One of {', '.join(BENCHMARKS)}")
    name, overrides = _known(arguments[0], BENCHMARKS, "benchmark"), list(arguments[1:])
    system = _known(_take_flag(overrides) or DEFAULT_SYSTEM[name], SYSTEMS, "system")
    default = wrap(RunConfig(benchmark=BENCHMARKS[name], system=SYSTEMS[system]))
    text = f"{description}\n\n{FLAG} NAME chooses another system, one of {', '.join(SYSTEMS)} (now {system})."
    return one_line_usage_error(
        lambda: tyro.cli(type(default), default=default, args=overrides, prog=f"{prog} {name}", description=text)
    )


def _take_flag(arguments: list[str]) -> str | None:
    """Remove ``--system NAME`` or ``--system=NAME`` from the arguments and return the name."""
    for place, argument in enumerate(arguments):
        if argument.startswith(f"{FLAG}="):
            del arguments[place]
            return argument.removeprefix(f"{FLAG}=")
        if argument == FLAG:
            if place + 1 == len(arguments):
                raise InputError(f"{FLAG}: expected a name, one of {', '.join(SYSTEMS)}")
            del arguments[place]
            return arguments.pop(place)
    return None


def _known(name: str, table: Iterable[str], kind: str) -> str:
    known = list(table)
    if name in known:
        return name
    close = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise InputError(f"unknown {kind} {name!r}; {hint}There are {', '.join(known)}")
