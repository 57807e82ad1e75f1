"""The commands by name, and the parsing of their options."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tyro

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
    MachinePreflightCommand,
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
from benchmark.config.run_options import named_data, parse_run, require_start, run_help
from foundation.cli import Command, choose, one_line_usage_error
from foundation.command_help import HELP_ALL, help_text, wants_help

COMMANDS: Mapping[str, type[Command]] = {
    "train": TrainCommand,
    "evaluate": EvaluateCommand,
    "schedule": ScheduleCommand,
    "plan": PlanCommand,
    "slice": SliceCommand,
    "preflight": PreflightCommand,
    "review": ReviewCommand,
    "replay": ReplayCommand,
    "rehearse": RehearseCommand,
    "reference-points": ReferencePointsCommand,
    "describe-system": DescribeSystemCommand,
    "package": PackageCommand,
    "status": StatusCommand,
    "results": ResultsCommand,
    "report": ReportCommand,
}
"""The commands, in the order in which ``--help`` lists them with the first sentence of their docstrings."""

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
    command, options = COMMANDS[choose(arguments[0], COMMANDS, "command")], arguments[1:]
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
