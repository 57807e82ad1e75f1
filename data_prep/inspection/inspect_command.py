"""The command that inspects a dataset, or compares two."""

import json
from dataclasses import dataclass
from pathlib import Path

from data_prep.inspection.inspect_dataset import (
    compare_datasets,
    format_dataset_comparison,
    format_dataset_report,
    inspect_dataset,
    require_sound,
)
from foundation.cli import JsonOption


@dataclass(frozen=True, kw_only=True)
class InspectDatasetCommand(JsonOption):
    """Check every pointer of a .bin/.idx pair and show its contents. Exit status 1: a check failed.

    Example: python -m data_prep inspect --data-path preprocessed_c4_spm/c4_en_6_c4_spm_text_document
    --tokenizer sentencepiece.model
    """

    data_path: Path
    """Prefix of the dataset, without .bin and .idx."""
    against: Path | None = None
    """Another dataset to compare with; exit status 1 if any token differs."""
    tokenizer: Path | None = None
    """SentencePiece model with which to show pieces, find tokens beyond the vocabulary, and decode a sample."""

    def run(self) -> None:
        dataset = inspect_dataset(self.data_path, self.tokenizer)
        other_dataset = None if self.against is None else inspect_dataset(self.against, self.tokenizer)
        comparison = None if other_dataset is None else compare_datasets(dataset, other_dataset)
        if self.json:
            print(json.dumps({**dataset.report, "against": comparison}, indent=1))
        else:
            print(format_dataset_report(dataset.report))
            if comparison is not None:
                print(format_dataset_comparison(dataset.report, comparison))
        require_sound([dataset] if other_dataset is None else [dataset, other_dataset], comparison)
