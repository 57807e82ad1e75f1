"""The commands by name, and how their options are read."""

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
from benchmark.config.run_options import parse_run, run_help
from stage.cli import Command, choose, one_line_usage_error
from stage.command_help import HELP_ALL, help_text, wants_help

COMMANDS: Mapping[str, tuple[type[Command], str]] = {
    "train": (
        TrainCommand,
        "Train a benchmark to its quality target, timed and logged. One process per device: torchrun or srun.",
    ),
    "evaluate": (
        EvaluateCommand,
        "Log perplexity of a checkpoint, converted or a run's own, on the whole validation set.",
    ),
    "schedule": (ScheduleCommand, "Every step of a run: consumed samples, learning rate, whether it evaluates."),
    "plan": (
        PlanCommand,
        "Memory, messages, step time and time to train of a run, without its devices; the fastest layout.",
    ),
    "slice": (SliceCommand, "A few layers at the true width on this machine's GPUs: step, MFU, memory, profile."),
    "preflight": (
        PreflightCommand,
        "Whether machines and inputs will carry a run; --first-contact: all that only a GPU can tell.",
    ),
    "review": (ReviewCommand, "Whether results and packages would be accepted, and what their score is."),
    "replay": (ReplayCommand, "A stretch of a run again from its checkpoint, compared with its evidence link by link."),
    "rehearse": (
        RehearseCommand,
        "The whole benchmark at a small size on this machine, from corpus to reviewed result.",
    ),
    "reference-points": (
        ReferencePointsCommand,
        "Tokens to the target over several runs: mean, deviation, smallest accepted median, official file format.",
    ),
    "describe-system": (
        DescribeSystemCommand,
        "The MLPerf description of this machine, with a mark where it takes a person to know.",
    ),
    "package": (
        PackageCommand,
        "Three results, a system description and the code become a submission that review passes.",
    ),
    "status": (StatusCommand, "How runs are doing: state, step, speed, attempts, where the time went, expected end."),
    "results": (ResultsCommand, "A table of runs, packages and rounds: a row per system and run; CSV, Parquet, XLSX."),
    "report": (ReportCommand, "One self-contained HTML page about runs."),
}
"""What each command is, and its line in the list of ``--help``."""


SHOWN: Mapping[str, Collection[str]] = {
    "train": ("run", "data", "checkpoints", "guards", "logging"),
    "evaluate": ("run", "data"),
    "schedule": ("benchmark",),
    "plan": ("system",),
    "preflight": ("run", "data"),
}
"""Sections of a run whose options ``--help`` lists, by command; ``--help-all`` lists the others, too."""


def parse(arguments: Sequence[str]) -> Command | None:
    """Return the command that ``arguments`` name, with its options; None where they ask for its help, which is printed.

    Raises InputError for anything unknown.
    """
    name, options = choose(arguments[0], COMMANDS, "command"), arguments[1:]
    command: Any = COMMANDS[name][0]
    if command is PreflightCommand and "--first-contact" in options:
        command = FirstContactCommand
    elif command is PreflightCommand and (not options or options[0].startswith("--json")):
        command = MachinePreflightCommand
    prog = f"python -m benchmark {name}"
    about_run = "config" in {field.name for field in dataclasses.fields(command)}
    if wants_help(options):
        shown = None if HELP_ALL in options else SHOWN.get(name)
        print(run_help(prog, options, command, shown) if about_run else help_text(prog, command))
        return None
    if about_run:
        made: Command = parse_run(prog, options, command, on_devices=_on_devices(command, options))
    else:
        made = one_line_usage_error(lambda: tyro.cli(command, args=list(options), prog=prog))
    return made


def _on_devices(command: type[Command], options: Sequence[str]) -> bool:
    """Whether the model has to be dealt out as the options say: a search looks for how."""
    return command is not ScheduleCommand and not (command is PlanCommand and "--search" in options)
