"""From C4's shards to token windows."""

from typing import NoReturn

from data_prep.commands.dataset_commands import BlendCommand, InspectDatasetCommand, MergeCommand, SamplesCommand
from data_prep.commands.preparation_commands import FetchCommand, PlanPreparationCommand
from data_prep.commands.text_commands import (
    PreprocessCommand,
    SyntheticCorpusCommand,
    TrainTokenizerCommand,
    ValidationSubsetCommand,
)
from stage.cli import main


def console() -> NoReturn:
    """``python -m data_prep``, and the script ``data_prep`` of an installation."""
    main(
        "data_prep",
        __doc__,
        {
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
        },
    )


if __name__ == "__main__":
    console()
