"""``BENCHMARK [--system NAME] [overrides]`` to a run's configuration: named data first, then single fields."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Annotated, Protocol, TypeVar

import tyro

from benchmark.config.benchmarks import BENCHMARKS
from benchmark.config.run_config import Benchmark, RunConfig
from benchmark.config.system_config import System
from benchmark.config.systems import DEFAULT_SYSTEM, SYSTEMS, system_called
from foundation.cli import choose, one_line_usage_error
from foundation.command_help import help_text
from foundation.errors import InputError

FLAG = "--system"
START_OPTIONS = {
    "--checkpoint": "--checkpoint (EXTERNAL_MODEL_CHECKPOINT_DIR)",
    "--start-iterations": "--start-iterations (EXTERNAL_TRAINING_ITERATIONS)",
    "--start-global-batch-size": "--start-global-batch-size (EXTERNAL_GBS)",
}
"""Options about an initial checkpoint, and how a person gave them: here, or as variables of run_gpt3.sh."""

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
    benchmark, system, overrides = named_data(prog, arguments)
    default = command(RunConfig(benchmark=benchmark, system=system if on_devices else _one_device_each(system)))
    parsed = one_line_usage_error(
        lambda: tyro.cli(type(default), default=default, args=overrides, prog=f"{prog} {benchmark.name}")
    )
    if on_devices:
        parsed.config.require_fit()
    return parsed


def named_data(prog: str, arguments: Sequence[str]) -> tuple[Benchmark, System, list[str]]:
    """Return the benchmark and the system that ``BENCHMARK [--system NAME] [overrides]`` name, and the overrides.

    Raises InputError for unknown names.
    """
    if not arguments or arguments[0].startswith("-"):
        raise InputError(f"{prog}: which benchmark? One of {', '.join(BENCHMARKS)}")
    name, overrides = choose(arguments[0], BENCHMARKS, "benchmark"), list(arguments[1:])
    system = system_called(_take_flag(overrides) or DEFAULT_SYSTEM[name], name)
    return BENCHMARKS[name], system, overrides


def require_start(benchmark: Benchmark, overrides: Sequence[str]) -> None:
    """Raise InputError if the overrides of a training run name an initial checkpoint and the benchmark has none."""
    for word in overrides:
        flag = word.partition("=")[0].replace("_", "-")
        if flag in START_OPTIONS and not benchmark.start_iterations:
            raise InputError(
                f"{flag}: {benchmark.name} has no initial checkpoint, it starts at step 0 with random weights; leave "
                f"{START_OPTIONS[flag]} out"
            )


def run_help(
    prog: str, arguments: Sequence[str], command: Callable[[RunConfig], RunCommand], shown: Collection[str] | None
) -> str:
    """Return the help of a command about a run, with the values of the benchmark and the system that are named, or of
    the first; ``shown``: as :func:`help_text`."""
    rest = list(arguments)
    system = _take_flag(rest)
    name = next((word for word in rest if word in BENCHMARKS), next(iter(BENCHMARKS)))
    chosen = system_called(system or DEFAULT_SYSTEM[name], name)
    made = command(RunConfig(benchmark=BENCHMARKS[name], system=chosen))
    told = help_text(prog, type(made), made=made, shown=shown, more=f" BENCHMARK [{FLAG} NAME]")
    systems = f"{', '.join(SYSTEMS)}, or a TOML file ({name}: {chosen.name})"
    return f"{told}\n\nBENCHMARK: {', '.join(BENCHMARKS)}. NAME: {systems}."


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
