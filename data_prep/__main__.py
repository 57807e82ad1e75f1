"""Prepare token windows from C4's shards."""

from __future__ import annotations

import importlib
import sys
from typing import NoReturn

from foundation.errors import run_command

COMMANDS = {
    "plan": ("preparation.preparation_plan", "PlanPreparationCommand"),
    "fetch": ("preparation.fetch", "FetchCommand"),
    "preprocess": ("preprocessing.preprocess", "PreprocessCommand"),
    "train-tokenizer": ("tokenizing.tokenizer", "TrainTokenizerCommand"),
    "validation-subset": ("corpus.validation_subset", "ValidationSubsetCommand"),
    "synthetic-corpus": ("corpus.synthetic_corpus", "SyntheticCorpusCommand"),
    "inspect": ("inspection.inspect_command", "InspectDatasetCommand"),
    "samples": ("sample_order.samples", "SamplesCommand"),
}
"""The module and the class of each command: a frozen dataclass whose fields are its options."""


def main() -> int | None:
    """Run ``python -m data_prep`` with ``sys.argv``; return the exit status, None for 0."""
    from foundation.cli import Command, run_subcommand

    names = [name for name in COMMANDS if name in sys.argv[1:2]]
    commands: dict[str, type[Command]] = {}
    for name in names or COMMANDS:  # one module imports a fraction of all
        module, kind = COMMANDS[name]
        commands[name] = getattr(importlib.import_module(f"data_prep.{module}"), kind)
    return run_subcommand("data_prep", __doc__, commands)


def console() -> NoReturn:
    """Run ``python -m data_prep``, or the script ``data_prep`` of an installation."""
    run_command(main)


if __name__ == "__main__":
    console()
