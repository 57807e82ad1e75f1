"""The table of commands: each row has a name, a class of options whose ``run`` does the work, and its part of a run."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from benchmark.commands.judge_commands import (
    DescribeSystemCommand,
    PackageCommand,
    ReplayCommand,
    ReportCommand,
    ResultsCommand,
    ReviewCommand,
)
from benchmark.commands.plan_commands import (
    FirstContactCommand,
    PlanCommand,
    PreflightCommand,
    SliceCommand,
)
from benchmark.commands.run_commands import (
    EvaluateCommand,
    ReferencePointsCommand,
    RehearseCommand,
    ScheduleCommand,
    StatusCommand,
    TrainCommand,
)
from benchmark.config.benchmarks import BENCHMARKS, REHEARSALS
from benchmark.config.run_config import RunConfig
from benchmark.config.run_options import SYSTEM_FLAG, RunReader, named_run, parse_run, require_start, run_help
from benchmark.config.systems import SYSTEMS
from benchmark.planning.run_plan.plan_options import PlannedRun
from foundation.cli import Command, choose, parse_options
from foundation.errors import InputError
from foundation.options.command_help import HELP_ALL, Option, help_text, options_of, wants_help
from foundation.options.completion import bash_completion
from foundation.options.option_values import flags_of

MODEL_AND_SYSTEM = ("run", "benchmark", "model", "optimizer", "system", "collectives", "data")
EVERY_SECTION = (*MODEL_AND_SYSTEM, "checkpoints", "guards", "logging", "debug")
PLANNED = ("run", "benchmark", "model", "system", "collectives", "checkpoints")


@dataclass(frozen=True)
class CommandRow:
    """One command."""

    name: str
    options: type[Any]
    """Dataclass whose fields are the command's own options, and whose ``run`` does the work."""
    flag: str = ""
    """Option that chooses this row where several have the name."""
    reads: Collection[str] = ()
    """Sections and options of a run that the command reads, after BENCHMARK [--system NAME]; none: it is not about a
    run."""
    accepts: Collection[str] = ()
    """Sections that it takes without reading them, because a job plans a run with the run's own words."""
    listed: Collection[str] | None = None
    """Sections that ``--help`` lists; ``--help-all`` lists the others, too. None: all that it reads."""
    needs_layout: bool = True
    """The model must fit the system's layout."""
    run: type[RunConfig] = RunConfig
    """Class of the run that the command takes."""
    needs_benchmark: bool = True
    """False: the command also does something without BENCHMARK."""
    trains: bool = False
    """The run begins as the options say, so that they must name a start and a learning rate that the benchmark has."""

    @property
    def reader(self) -> RunReader:
        return RunReader(
            self.name, self.reads, (*self.reads, *self.accepts), needs_layout=self.needs_layout, run=self.run
        )


COMMANDS: Sequence[CommandRow] = (
    CommandRow(
        "train",
        TrainCommand,
        reads=EVERY_SECTION,
        listed=("run", "data", "checkpoints", "guards", "logging"),
        trains=True,
    ),
    CommandRow("evaluate", EvaluateCommand, reads=MODEL_AND_SYSTEM, listed=("run", "data")),
    CommandRow(
        "schedule",
        ScheduleCommand,
        reads=(
            *(
                "--global-batch-size",
                "--start-iterations",
                "--start-global-batch-size",
                "--train-samples",
                "--max-steps",
            ),
            *(
                "--eval-interval-samples",
                "--seq-length",
                "--lr",
                "--min-lr",
                "--lr-warmup-samples",
                "--lr-decay-samples",
            ),
        ),
        needs_layout=False,
        trains=True,
    ),
    CommandRow(
        "plan",
        PlanCommand,
        run=PlannedRun,
        flag="--search",
        reads=PLANNED,
        accepts=EVERY_SECTION,
        listed=("system",),
        needs_layout=False,
    ),
    CommandRow("plan", PlanCommand, run=PlannedRun, reads=PLANNED, accepts=EVERY_SECTION, listed=("system",)),
    CommandRow("slice", SliceCommand),
    CommandRow("preflight", FirstContactCommand, flag="--first-contact"),
    CommandRow(
        "preflight", PreflightCommand, reads=EVERY_SECTION, listed=("run", "data"), needs_benchmark=False, trains=True
    ),
    CommandRow("review", ReviewCommand),
    CommandRow("replay", ReplayCommand),
    CommandRow("rehearse", RehearseCommand),
    CommandRow("reference-points", ReferencePointsCommand),
    CommandRow("describe-system", DescribeSystemCommand),
    CommandRow("package", PackageCommand),
    CommandRow("status", StatusCommand),
    CommandRow("results", ResultsCommand),
    CommandRow("report", ReportCommand),
)
"""The rows, in the order in which ``--help`` lists them; of several with one name, the last is listed."""


def parse(arguments: Sequence[str]) -> Command:
    """Return the command that ``arguments`` name, with its options. Raises InputError for anything unknown."""
    row, words = _row(arguments), arguments[1:]
    prog = f"python -m benchmark {row.name}"
    if row.reads and (row.needs_benchmark or (words and not words[0].startswith("-"))):
        if row.trains:
            benchmark, _, overrides = named_run(prog, words)
            require_start(benchmark, overrides)
        run_command: Any = parse_run(prog, words, row.options, row.reader)
        if row.trains:
            run_command.config.require_rates()
        command: Command = run_command
        return command
    if row.reads:
        _refuse_options_of_a_run(row, words)
    command = parse_options(row.options, words)
    return command


def _refuse_options_of_a_run(row: CommandRow, words: Sequence[str]) -> None:
    """Raise InputError for an option of a run where no benchmark says which run."""
    of_run = {flag for option in options_of(row.options) if option.section for flag in flags_of(option)}
    for flag in (word.partition("=")[0].replace("_", "-") for word in words):
        if flag in {*of_run, SYSTEM_FLAG}:
            raise InputError(
                f"{flag} is an option of a run: which benchmark? {row.name} BENCHMARK {flag} …, with one of "
                f"{', '.join(BENCHMARKS)}"
            )


def help_of(arguments: Sequence[str]) -> str | None:
    """Return the help of the command that ``arguments`` name; None if they do not ask for it."""
    row, words = _row(arguments), arguments[1:]
    if not wants_help(words):
        return None
    prog = f"python -m benchmark {row.name}"
    if not row.reads:
        return help_text(prog, row.options)
    return run_help(prog, words, row.options, row.reader, None if HELP_ALL in words else row.listed)


def completions() -> str:
    """Return the file of completions: the options that a command reads, and the names of benchmarks and systems."""
    options: dict[str, list[Option]] = {}
    choices: dict[str, dict[str, Sequence[str]]] = {}
    for row in COMMANDS:
        command_options = [
            option for option in options_of(row.options) if not row.reads or row.reader.reads_option(option)
        ]
        options.setdefault(row.name, []).extend(command_options)
        names: dict[str, Sequence[str]] = {row.flag: ()} if row.flag else {}
        if row.reads or row.options is SliceCommand:
            names[""] = tuple(BENCHMARKS)
        if "system" in row.reads:
            names[SYSTEM_FLAG] = tuple(SYSTEMS)
        choices.setdefault(row.name, {}).update(names)
    choices["rehearse"] = {"": tuple(REHEARSALS)}
    return bash_completion("benchmark", options, choices)


def _row(arguments: Sequence[str]) -> CommandRow:
    name = choose(arguments[0], dict.fromkeys(row.name for row in COMMANDS), "command")
    return next(row for row in COMMANDS if row.name == name and (not row.flag or row.flag in arguments))
