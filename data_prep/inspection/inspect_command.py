"""The command that inspects a dataset, or compares two."""

import json
from dataclasses import dataclass
from pathlib import Path

from data_prep.inspection.dataset_exports import draw_datasets, require_exports, write_tables
from data_prep.inspection.inspect_dataset import (
    compare_datasets,
    format_dataset_comparison,
    format_dataset_report,
    inspect_dataset,
    require_sound,
)
from data_prep.sample_order.blend_file import format_blend, is_blend_file, require_unchanged_blend
from data_prep.tokenizing.tokenizer import open_tokenizer
from foundation.cli import JsonOption


@dataclass(frozen=True, kw_only=True)
class InspectDatasetCommand(JsonOption):
    """Check every pointer of a .bin/.idx pair and show its contents. Exit status 1: a check failed.

    Example: python -m data_prep inspect --data-path preprocessed_c4_spm/c4_en_6_c4_spm_text_document
    --tokenizer sentencepiece.model --picture lengths.svg
    """

    data_path: Path
    """Prefix of the dataset, without .bin and .idx; or a .blend.json, whose datasets are opened and compared with
    it."""
    against: Path | None = None
    """Another dataset to compare with; exit status 1 if any token differs."""
    tokenizer: Path | None = None
    """SentencePiece model with which to show pieces, find tokens beyond the vocabulary, and decode a sample."""
    picture: Path | None = None
    """Draw document lengths and token frequencies into this .svg or .png; needs matplotlib."""
    tables: Path | None = None
    """Write summary.csv, lengths.csv and tokens.csv into this folder."""

    def run(self) -> None:
        if is_blend_file(self.data_path.name):
            require_unchanged_blend(self.data_path)
            print(self.data_path.read_text(encoding="utf-8").rstrip() if self.json else format_blend(self.data_path))
            return
        require_exports(self.picture, self.tables)
        one = inspect_dataset(self.data_path, self.tokenizer)
        other = None if self.against is None else inspect_dataset(self.against, self.tokenizer)
        comparison = None if other is None else compare_datasets(one, other)
        if self.json:
            print(json.dumps({**one.report, "against": comparison}, indent=1))
        else:
            print(format_dataset_report(one.report))
            if comparison is not None:
                print(format_dataset_comparison(one.report, comparison))
        datasets = [one] if other is None else [one, other]
        if self.picture is not None:
            draw_datasets(datasets, self.picture)
        if self.tables is not None:
            write_tables(datasets, None if self.tokenizer is None else open_tokenizer(self.tokenizer), self.tables)
        require_sound(datasets, comparison)
