"""``BENCHMARK [--system NAME] [overrides]`` to a run's configuration: named data first, then single fields."""

import difflib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Protocol, TypeVar

import tyro

from benchmark.config.benchmarks import BENCHMARKS
from benchmark.config.run_config import RunConfig
from benchmark.config.system_config import System
from benchmark.config.systems import DEFAULT_SYSTEM, SYSTEMS, system_called
from stage.cli import one_line_usage_error
from stage.errors import InputError

FLAG = "--system"

RunOptions = Annotated[tyro.conf.OmitArgPrefixes[RunConfig], tyro.conf.arg(name="run")]
"""A command's field for the run that its options name: BENCHMARK [--system NAME] [overrides]."""


class RunCommand(Protocol):
    """A command about a run."""

    @property
    def config(self) -> RunConfig: ...


Parsed = TypeVar("Parsed", bound=RunCommand)


def parse_run(
    prog: str, arguments: Sequence[str], command: Callable[[RunConfig], Parsed], *, on_devices: bool
) -> Parsed:
    """The options of a command about a run: ``PROG BENCHMARK [--system NAME] [overrides]``.

    ``command`` is the command's own dataclass, whose field ``config`` is the run and whose other fields have defaults.
    ``on_devices``: the model has to be dealt out to the system's devices, by the system's layout. Raises InputError
    for an unknown benchmark, system or option, and for values that do not fit together.
    """
    description = inspect.cleandoc(command.__doc__ or "")
    if not arguments or arguments[0].startswith("-"):
        if {"-h", "--help"} & set(arguments):
            print(f"usage: {prog} {{{','.join(BENCHMARKS)}}} [--system {{{','.join(SYSTEMS)}}}] [overrides]\n")
            print(f"{description}\n\nThe overrides are listed by: {prog} {next(iter(BENCHMARKS))} --help")
            raise SystemExit(0)
        raise InputError(f"{prog}: which benchmark? One of {', '.join(BENCHMARKS)}")
    name, overrides = _benchmark(arguments[0]), list(arguments[1:])
    system = system_called(_take_flag(overrides) or DEFAULT_SYSTEM[name])
    layout = system if on_devices else _one_device_each(system)
    default = command(RunConfig(benchmark=BENCHMARKS[name], system=layout))
    text = f"{description}\n\n{FLAG} NAME chooses another system, one of {', '.join(SYSTEMS)} (now {system.name}), or "
    text += "a TOML file of yours."
    parsed = one_line_usage_error(
        lambda: tyro.cli(type(default), default=default, args=overrides, prog=f"{prog} {name}", description=text)
    )
    if on_devices:
        parsed.config.require_fit()
    return parsed


def _one_device_each(system: System) -> System:
    """The layout that any number of devices can have: for commands that deal nothing out, or look for how."""
    return replace(system, tensor_parallel=1, pipeline_parallel=1, pipeline_chunks=1, replicas=1)


def _take_flag(arguments: list[str]) -> str | None:
    """Remove ``--system NAME`` or ``--system=NAME`` from the arguments and return the name."""
    for place, argument in enumerate(arguments):
        if argument.startswith(f"{FLAG}="):
            del arguments[place]
            return argument.removeprefix(f"{FLAG}=")
        if argument == FLAG:
            if place + 1 == len(arguments):
                raise InputError(f"{FLAG}: expected a name, one of {', '.join(SYSTEMS)}, or a TOML file")
            del arguments[place]
            return arguments.pop(place)
    return None


def _benchmark(name: str) -> str:
    if name in BENCHMARKS:
        return name
    close = difflib.get_close_matches(name, BENCHMARKS, 1)
    hint = f"did you mean {close[0]}? There are" if close else "there are"
    raise InputError(f"unknown benchmark {name!r}; {hint} {', '.join(BENCHMARKS)}")
