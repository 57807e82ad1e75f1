"""What a dataset holds, as pandas tables, for notebooks and as files."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from data_prep.inspection.inspect_dataset import Inspected
from data_prep.tokenizing.tokenizer import Tokenizer
from stage.limits.replacing import require_same_kind
from stage.optional_packages import import_optional, require_optional
from stage.publish import published_file

if TYPE_CHECKING:
    import pandas as pd

PURPOSE = "--tables"
TABLES = ("summary.csv", "lengths.csv", "tokens.csv")


def require_pandas() -> None:
    """Raise InputError before hours of counting rather than after, where no table could be made."""
    require_optional("pandas", "pandas", PURPOSE)


def require_free_for_tables(folder: Path) -> None:
    """Raise InputError where a table would replace something else."""
    for name in TABLES:
        require_same_kind(folder / name, PURPOSE, "such a table", lambda head: head.startswith(b"dataset,"))


def lengths_table(datasets: Sequence[Inspected]) -> "pd.DataFrame":
    """A row per dataset and length: ``dataset``, ``length`` in tokens, ``documents`` of that length."""
    return _concatenated(
        {
            "dataset": dataset.shown_name,
            "length": dataset.lengths.values,
            "documents": dataset.lengths.counts,
        }
        for dataset in datasets
    )


def tokens_table(datasets: Sequence[Inspected], model: Tokenizer | None) -> "pd.DataFrame":
    """A row per dataset and token that occurs in it, the most frequent first: ``dataset``, ``id``, ``piece`` (where a
    tokenizer is given; empty for an id that it does not have), ``count``, and ``share`` of all tokens."""
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
    """A row per dataset: the figures of its report."""
    pandas = import_optional("pandas", "pandas", PURPOSE)
    rows = []
    for dataset in datasets:
        report = dataset.report
        rows.append(
            {
                "dataset": dataset.shown_name,
                "dtype": report.dtype,
                "documents": report.documents,
                "tokens": report.tokens,
                "shortest": report.shortest,
                "mean_length": report.mean_length,
                **{f"length_{percent}_percent": length for percent, length in report.percentiles.items()},
                "longest": report.longest,
                "distinct_tokens": report.distinct_tokens,
                "largest_id": report.largest_id,
            }
        )
    table: pd.DataFrame = pandas.DataFrame(rows)
    return table


def write_tables(datasets: Sequence[Inspected], model: Tokenizer | None, folder: Path) -> list[Path]:
    """Write ``summary.csv``, ``lengths.csv`` and ``tokens.csv`` into ``folder``; returns their paths."""
    tables = (summary_table(datasets), lengths_table(datasets), tokens_table(datasets, model))
    paths = []
    for name, table in zip(TABLES, tables, strict=True):
        path = folder / name
        with published_file(path) as partial:
            table.to_csv(partial, index=False)
        paths.append(path)
    return paths


def _concatenated(parts: Iterable[Mapping[str, object]]) -> "pd.DataFrame":
    pandas = import_optional("pandas", "pandas", PURPOSE)
    table: pd.DataFrame = pandas.concat([pandas.DataFrame(part) for part in parts], ignore_index=True)
    return table
