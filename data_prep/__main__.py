"""Prepare token windows from C4's shards."""

import importlib
import sys
from typing import NoReturn

from stage.errors import run_command

COMMANDS = {
    "preparation_commands": {"plan": "PlanPreparationCommand", "fetch": "FetchCommand"},
    "text_commands": {
        "preprocess": "PreprocessCommand",
        "train-tokenizer": "TrainTokenizerCommand",
        "validation-subset": "ValidationSubsetCommand",
        "synthetic-corpus": "SyntheticCorpusCommand",
    },
    "inspect_command": {"inspect": "InspectDatasetCommand"},
    "dataset_commands": {"samples": "SamplesCommand", "blend": "BlendCommand", "merge": "MergeCommand"},
}
"""Modules of ``data_prep.commands``, and the class of each command."""


def main() -> int | None:
    """Run ``python -m data_prep`` with ``sys.argv``; return the exit status, None for 0."""
    from stage.cli import Command, run_subcommand

    wanted = [module for module, classes in COMMANDS.items() if classes.keys() & sys.argv[1:2]]
    commands: dict[str, type[Command]] = {}
    for module in wanted or COMMANDS:  # one module imports a fraction of what all do
        imported = importlib.import_module(f"data_prep.commands.{module}")
        commands |= {name: getattr(imported, kind) for name, kind in COMMANDS[module].items()}
    return run_subcommand("data_prep", __doc__, commands)


def console() -> NoReturn:
    """Run ``python -m data_prep``, or the script ``data_prep`` of an installation."""
    run_command(main)


if __name__ == "__main__":
    console()
