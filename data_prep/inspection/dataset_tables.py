"""The contents of datasets as pandas tables, for notebooks and as files."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from data_prep.inspection.inspect_dataset import Inspected
from data_prep.tokenizing.tokenizer import Tokenizer
from stage.outputs.publish import published_file, require_same_kind

if TYPE_CHECKING:
    import pandas as pd

TABLES = ("summary.csv", "lengths.csv", "tokens.csv")


def require_free_for_tables(folder: Path) -> None:
    """Raise InputError where a table would replace something else."""
    for name in TABLES:
        require_same_kind(folder / name, "--tables", "such a table", lambda head: head.startswith(b"dataset,"))


def lengths_table(datasets: Sequence[Inspected]) -> "pd.DataFrame":
    """Return a row per dataset and length: ``dataset``, ``length`` in tokens, ``documents`` of that length."""
    return _concatenated(
        {
            "dataset": dataset.shown_name,
            "length": dataset.lengths.values,
            "documents": dataset.lengths.counts,
        }
        for dataset in datasets
    )


def tokens_table(datasets: Sequence[Inspected], model: Tokenizer | None) -> "pd.DataFrame":
    """Return a row per dataset and token that occurs in it, the most frequent first: ``dataset``, ``id``, ``piece``
    (where a tokenizer is given; empty for an id that it does not have), ``count``, and ``share`` of all tokens."""
    frames = []
    for dataset in datasets:
        counts = dataset.tokens
        columns: dict[str, object] = {"dataset": dataset.shown_name, "id": counts.values}
        if model is not None:
            known = model.vocab_size
            columns["piece"] = [model.piece(token) if token < known else None for token in counts.values.tolist()]
        columns |= {"count": counts.counts, "share": counts.counts / counts.total}
        frames.append(columns)
    return _concatenated(frames).sort_values(["dataset", "count", "id"], ascending=[True, False, True])


def summary_table(datasets: Sequence[Inspected]) -> "pd.DataFrame":
    """Return a row per dataset: the figures of its report."""
    rows = []
    for dataset in datasets:
        row: dict[str, object] = {"dataset": [dataset.shown_name]}
        for name, value in asdict(dataset.report).items():
            if name == "percentiles":
                row |= {f"length_{percent}_percent": length for percent, length in value.items()}
            elif isinstance(value, (str, int, float)) and name not in ("prefix", "bin_bytes", "idx_bytes"):
                row[name] = value
        rows.append(row)
    return _concatenated(rows)


def write_tables(datasets: Sequence[Inspected], model: Tokenizer | None, folder: Path) -> None:
    """Write ``summary.csv``, ``lengths.csv`` and ``tokens.csv`` into ``folder``."""
    tables = (summary_table(datasets), lengths_table(datasets), tokens_table(datasets, model))
    for name, table in zip(TABLES, tables, strict=True):
        with published_file(folder / name) as partial:
            table.to_csv(partial, index=False)


def _concatenated(frames: Iterable[Mapping[str, object]]) -> "pd.DataFrame":
    import pandas  # slow to import, and not needed elsewhere

    return pandas.concat([pandas.DataFrame(frame) for frame in frames], ignore_index=True)
