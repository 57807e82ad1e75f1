"""The commands by name, and the parsing of their options."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tyro

from benchmark.commands.first_contact_command import FirstContactCommand
from benchmark.commands.judge_commands import (
    DescribeSystemCommand,
    PackageCommand,
    ReportCommand,
    ResultsCommand,
    ReviewCommand,
)
from benchmark.commands.plan_commands import PlanCommand, SliceCommand
from benchmark.commands.rehearsal_commands import ReferencePointsCommand, RehearseCommand
from benchmark.commands.replay_command import ReplayCommand
from benchmark.commands.run_commands import (
    EvaluateCommand,
    MachinePreflightCommand,
    PreflightCommand,
    ScheduleCommand,
    StatusCommand,
    TrainCommand,
)
from benchmark.config.run_options import named_data, parse_run, require_start, run_help
from stage.cli import Command, choose, one_line_usage_error
from stage.command_help import HELP_ALL, help_text, wants_help

COMMANDS: Mapping[str, tuple[type[Command], str]] = {
    "train": (
        TrainCommand,
        "Train a benchmark to its quality target, timed and logged. One process per device, by torchrun or srun.",
    ),
    "evaluate": (
        EvaluateCommand,
        "Compute the log perplexity of a checkpoint, converted or a run's own, on the whole validation set.",
    ),
    "schedule": (ScheduleCommand, "Print every step of a run: consumed samples, learning rate, evaluations."),
    "plan": (
        PlanCommand,
        "Predict memory, messages, step time and time to train of a run, without its devices; find the fastest layout.",
    ),
    "slice": (SliceCommand, "Train a few layers at the true width on this machine's GPUs: step, MFU, memory, profile."),
    "preflight": (
        PreflightCommand,
        "Check whether machines and inputs are fit for a run; --first-contact: test everything that needs a GPU.",
    ),
    "review": (ReviewCommand, "Check whether results and packages would be accepted, and compute their score."),
    "replay": (
        ReplayCommand,
        "Train a stretch of a run again from its checkpoint, and compare it with the run's evidence.",
    ),
    "rehearse": (
        RehearseCommand,
        "Run the whole benchmark at a small size on this machine, from corpus to reviewed result.",
    ),
    "reference-points": (
        ReferencePointsCommand,
        "Write the tokens to the target over several runs, in the official file format, with mean and deviation.",
    ),
    "describe-system": (
        DescribeSystemCommand,
        "Write the MLPerf description of this machine, with a mark where a person has to fill it in.",
    ),
    "package": (
        PackageCommand,
        "Make a submission that review passes, of three results, a system description and the code.",
    ),
    "status": (StatusCommand, "Print the status of runs: state, step, speed, attempts, use of time, expected end."),
    "results": (
        ResultsCommand,
        "Make a table of runs, packages and rounds: a row per system and run; CSV, Parquet.",
    ),
    "report": (ReportCommand, "Write one self-contained HTML page about runs."),
}
"""The class of each command, and its line in the list of ``--help``."""


SHOWN: Mapping[str, Collection[str]] = {
    "train": ("run", "data", "checkpoints", "guards", "logging"),
    "evaluate": ("run", "data"),
    "schedule": ("benchmark",),
    "plan": ("system",),
    "preflight": ("run", "data"),
}
"""Sections of a run whose options ``--help`` lists, by command; ``--help-all`` lists the others, too."""


def parse(arguments: Sequence[str]) -> Command:
    """Return the command that ``arguments`` name, with its options. Raises InputError for anything unknown."""
    command, options = _named(arguments)
    prog = f"python -m benchmark {arguments[0]}"
    made: Command
    if _about_run(command):
        if command is TrainCommand:
            benchmark, _, overrides = named_data(prog, options)
            require_start(benchmark, overrides)
        made = parse_run(prog, options, command, on_devices=_on_devices(command, options))
    else:
        made = one_line_usage_error(lambda: tyro.cli(command, args=list(options), prog=prog))
    return made


def help_of(arguments: Sequence[str]) -> str | None:
    """Return the help of the command that ``arguments`` name; None if they do not ask for it."""
    command, options = _named(arguments)
    if not wants_help(options):
        return None
    prog = f"python -m benchmark {arguments[0]}"
    shown = None if HELP_ALL in options else SHOWN.get(arguments[0])
    return run_help(prog, options, command, shown) if _about_run(command) else help_text(prog, command)


def _named(arguments: Sequence[str]) -> tuple[Any, Sequence[str]]:
    """Return the class of the command, and its options."""
    command, options = COMMANDS[choose(arguments[0], COMMANDS, "command")][0], arguments[1:]
    if command is PreflightCommand and "--first-contact" in options:
        return FirstContactCommand, options
    if command is PreflightCommand and (not options or options[0].startswith("--json")):
        return MachinePreflightCommand, options
    return command, options


def _about_run(command: Any) -> bool:
    return "config" in {field.name for field in dataclasses.fields(command)}


def _on_devices(command: type[Command], options: Sequence[str]) -> bool:
    """Return whether the model has to be distributed over the devices as the options say; a search varies that."""
    return command is not ScheduleCommand and not (command is PlanCommand and "--search" in options)
