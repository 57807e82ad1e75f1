"""Turn ``BENCHMARK [--system NAME] [overrides]`` into a run: names choose data, overrides change single fields."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.benchmarks import BENCHMARKS
from benchmark.config.run_config import RunConfig
from benchmark.config.system_config import System
from benchmark.config.systems import DEFAULT_SYSTEM, SYSTEMS, system_called
from foundation.cli import choose, parse_options
from foundation.errors import InputError
from foundation.options.command_help import Option, help_text, options_of, wrapped
from foundation.options.option_marks import Unprefixed

SYSTEM_FLAG = "--system"
START_OPTIONS = {
    "--checkpoint": "--checkpoint (EXTERNAL_MODEL_CHECKPOINT_DIR)",
    "--start-iterations": "--start-iterations (EXTERNAL_TRAINING_ITERATIONS)",
    "--start-global-batch-size": "--start-global-batch-size (EXTERNAL_GBS)",
}
"""Options about an initial checkpoint, and how a person gave them: here, or as variables of run_gpt3.sh."""

RunOptions = Unprefixed[RunConfig]
"""A command's field for the run that its options name: BENCHMARK [--system NAME] [overrides]."""


class RunCommand(Protocol):
    """A command about a run; the field ``config`` is the run, the other fields have defaults."""

    @property
    def config(self) -> RunConfig | None: ...

    def run(self) -> int | None: ...


@dataclass(frozen=True)
class RunReader:
    """The part of a run that a command reads."""

    name: str
    """Name of the command."""
    reads: Collection[str]
    """Sections and options that have an effect."""
    accepts: Collection[str]
    """Sections and options that are not refused."""
    needs_layout: bool
    """The model must fit the system's layout."""
    run: type[RunConfig] = RunConfig
    """Class of the run, which may have values that only this command knows."""

    def reads_option(self, option: Option) -> bool:
        return _belongs(option, self.reads)

    def require_read(self, words: Sequence[str], options: Collection[Option]) -> None:
        """Raise InputError for an option of a run that has no effect on the command."""
        accepted_flags = {flag for option in options if _belongs(option, self.accepts) for flag in _flags(option)}
        run_flags = {flag for option in options for flag in _flags(option)}
        if "system" not in self.accepts:
            run_flags.add(SYSTEM_FLAG)
        for word in words:
            flag = word.partition("=")[0].replace("_", "-")
            if flag in run_flags - accepted_flags:
                raise InputError(f"{flag} has no effect on {self.name}; leave it out (see --help)")


Parsed = TypeVar("Parsed", bound=RunCommand)


def parse_run(prog: str, words: Sequence[str], command: Callable[..., Parsed], reader: RunReader) -> Parsed:
    """Return the command that ``PROG BENCHMARK [--system NAME] [overrides]`` names.

    ``command`` is its dataclass, whose field ``config`` is the run. Raises InputError for an unknown benchmark, system
    or option, for an option without effect, and for values that do not fit together.
    """
    benchmark, system, overrides = named_run(prog, words)
    default = command(
        config=reader.run(benchmark=benchmark, system=system if reader.needs_layout else _undistributed(system))
    )
    reader.require_read(words, list(options_of(type(default), default)))
    parsed = parse_options(type(default), overrides, default=default)
    if reader.needs_layout and parsed.config is not None:
        parsed.config.require_fit()
    return parsed


def named_run(prog: str, words: Sequence[str]) -> tuple[Benchmark, System, list[str]]:
    """Return the benchmark and the system that ``BENCHMARK [--system NAME] [overrides]`` name, and the overrides.

    The benchmark has the learning rate of its reference point at the batch size among the overrides. Raises InputError
    for unknown names.
    """
    if not words or words[0].startswith("-"):
        raise InputError(f"{prog}: which benchmark? One of {', '.join(BENCHMARKS)}")
    name, overrides = choose(words[0], BENCHMARKS, "benchmark"), list(words[1:])
    system = system_called(_take_system(overrides) or DEFAULT_SYSTEM[name], name)
    if (other := _take_system(overrides)) is not None:
        raise InputError(f"{SYSTEM_FLAG} {other}: another system is named before it; leave one of them out")
    benchmark = BENCHMARKS[name].at_batch_size(_number(overrides, "--global-batch-size"))
    return benchmark.at_peak_rate(_number(overrides, "--lr")), system, overrides


def require_start(benchmark: Benchmark, overrides: Sequence[str]) -> None:
    """Raise InputError if the overrides of a training run name an initial checkpoint and the benchmark has none, or a
    batch size without a learning rate and the benchmark has no reference point there."""
    flags = [word.partition("=")[0].replace("_", "-") for word in overrides if word.startswith("--")]
    for flag in flags:
        if flag in START_OPTIONS and not benchmark.start_iterations:
            raise InputError(
                f"{flag}: {benchmark.name} has no initial checkpoint, it starts at step 0 with random weights; leave "
                f"{START_OPTIONS[flag]} out"
            )
    size = _number(overrides, "--global-batch-size")
    if size is not None and not {"--lr", "--lr-warmup-samples"} <= set(flags):
        benchmark.require_reference_rate(size)


def run_help(
    prog: str,
    words: Sequence[str],
    command: Callable[..., RunCommand],
    reader: RunReader,
    listed: Collection[str] | None,
) -> str:
    """Return the help of a command about a run, with the values of the benchmark and the system that are named, or of
    the first; ``listed``: as :func:`help_text`."""
    names = list(words)
    system_name = _take_system(names)
    name = next((word for word in names if word in BENCHMARKS), next(iter(BENCHMARKS)))
    system = system_called(system_name or DEFAULT_SYSTEM[name], name)
    default = command(config=reader.run(benchmark=BENCHMARKS[name], system=system))
    offers_system = "system" in reader.reads
    usage = " BENCHMARK" + (f" [{SYSTEM_FLAG} NAME]" if offers_system else "")
    text = help_text(prog, type(default), defaults=default, sections=listed, more=usage, offered=reader.reads_option)
    names_line = f"BENCHMARK: {', '.join(BENCHMARKS)}."
    if offers_system:
        names_line += f" NAME: {', '.join(SYSTEMS)}, or a TOML file ({name}: {system.name})."
    return f"{text}\n\n{wrapped(names_line)}"


def _belongs(option: Option, selection: Collection[str]) -> bool:
    return not option.section or option.section in selection or option.name in selection


def _flags(option: Option) -> tuple[str, ...]:
    """Return the spellings of an option: a switch has ``--no-`` before its name, too."""
    name = option.name.removeprefix("--no-").removeprefix("--")
    return (f"--{name}", f"--no-{name}")


def _undistributed(system: System) -> System:
    """Return the layout that any number of devices can have: for commands that deal nothing out, or look for how."""
    return replace(system, tensor_parallel=1, pipeline_parallel=1, pipeline_chunks=1, replicas=1)


def _number(words: Sequence[str], flag: str) -> float | None:
    """Return the number that an option gives; None without the option, and for text that the parser will refuse."""
    text = _value(words, flag)
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _value(words: Sequence[str], flag: str) -> str | None:
    """Return the last value of an option, written ``--flag VALUE`` or ``--flag=VALUE``; None without the option."""
    value = None
    for number, word in enumerate(words):
        name, equals, text = word.partition("=")
        if name.replace("_", "-") == flag:
            value = text if equals else words[number + 1] if number + 1 < len(words) else None
    return value


def _take_system(words: list[str]) -> str | None:
    """Remove ``--system NAME`` or ``--system=NAME`` from the words and return the name."""
    for number, word in enumerate(words):
        if word.startswith(f"{SYSTEM_FLAG}="):
            del words[number]
            return word.removeprefix(f"{SYSTEM_FLAG}=")
        if word == SYSTEM_FLAG:
            if number + 1 == len(words):
                raise InputError(f"{SYSTEM_FLAG}: expected a name, one of {', '.join(SYSTEMS)}, or a TOML file")
            del words[number]
            return words.pop(number)
    return None
