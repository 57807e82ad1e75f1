"""From C4's shards to token windows."""

from typing import NoReturn

from stage.errors import run_command


def main() -> int | None:
    """``python -m data_prep``, with ``sys.argv``; returns the exit status, None for 0."""
    from data_prep.commands.dataset_commands import BlendCommand, InspectDatasetCommand, MergeCommand, SamplesCommand
    from data_prep.commands.preparation_commands import FetchCommand, PlanPreparationCommand
    from data_prep.commands.text_commands import (
        PreprocessCommand,
        SyntheticCorpusCommand,
        TrainTokenizerCommand,
        ValidationSubsetCommand,
    )
    from stage.cli import run_subcommand

    commands = {
        "plan": PlanPreparationCommand,
        "fetch": FetchCommand,
        "preprocess": PreprocessCommand,
        "samples": SamplesCommand,
        "inspect": InspectDatasetCommand,
        "blend": BlendCommand,
        "merge": MergeCommand,
        "train-tokenizer": TrainTokenizerCommand,
        "validation-subset": ValidationSubsetCommand,
        "synthetic-corpus": SyntheticCorpusCommand,
    }
    return run_subcommand("data_prep", __doc__, commands)


def console() -> NoReturn:
    """``python -m data_prep``, and the script ``data_prep`` of an installation."""
    run_command(main)


if __name__ == "__main__":
    console()
