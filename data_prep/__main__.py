"""From C4's shards to token windows."""

import sys
from typing import NoReturn

from stage.errors import run_command


def main() -> int | None:
    """``python -m data_prep``, with ``sys.argv``; returns the exit status, None for 0."""
    from data_prep.commands.preparation_commands import FetchCommand, PlanPreparationCommand
    from data_prep.commands.text_commands import (
        PreprocessCommand,
        SyntheticCorpusCommand,
        TrainTokenizerCommand,
        ValidationSubsetCommand,
    )
    from stage.cli import Command, run_subcommand

    commands: dict[str, type[Command]] = {
        "plan": PlanPreparationCommand,
        "fetch": FetchCommand,
        "preprocess": PreprocessCommand,
        "train-tokenizer": TrainTokenizerCommand,
        "validation-subset": ValidationSubsetCommand,
        "synthetic-corpus": SyntheticCorpusCommand,
    }
    if not commands.keys() & sys.argv[1:2]:  # else nothing is imported for the others
        from data_prep.commands.dataset_commands import (
            BlendCommand,
            InspectDatasetCommand,
            MergeCommand,
            SamplesCommand,
        )

        commands |= {
            "samples": SamplesCommand,
            "inspect": InspectDatasetCommand,
            "blend": BlendCommand,
            "merge": MergeCommand,
        }
    return run_subcommand("data_prep", __doc__, commands)


def console() -> NoReturn:
    """``python -m data_prep``, and the script ``data_prep`` of an installation."""
    run_command(main)


if __name__ == "__main__":
    console()
