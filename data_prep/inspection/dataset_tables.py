"""Make pandas tables of the contents of datasets, for notebooks and as files."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from data_prep.inspection.inspect_dataset import Inspected, piece_of
from data_prep.tokenizing.tokenizer import AnyTokenizer
from stage.outputs.publish import published_file, require_same_kind

TABLES = ("summary.csv", "lengths.csv", "tokens.csv")


def require_free_for_tables(folder: Path) -> None:
    """Raise InputError if a table would replace another kind of file."""
    for name in TABLES:
        require_same_kind(folder / name, "--tables", "such a table", lambda head: head.startswith(b"dataset,"))


def dataset_tables(datasets: Sequence[Inspected], model: AnyTokenizer | None) -> dict[str, pd.DataFrame]:
    """Return the tables by the names of their files, each with a column ``dataset``.

    summary.csv has a row per dataset: the figures of its report. lengths.csv has a row per ``length`` in tokens:
    ``documents`` of that length. tokens.csv has a row per token that occurs, the most frequent first: ``id``, ``piece``
    (if a tokenizer is given; empty for an id beyond its pieces), ``count``, and ``share`` of all tokens.
    """
    tables: dict[str, list[pd.DataFrame]] = {name: [] for name in TABLES}
    for dataset in datasets:
        # Tables hold UTF-8 only; names of files need not be.
        name = {"dataset": dataset.report["prefix"].encode(errors="backslashreplace").decode()}
        summary: dict[str, object] = {}
        for field, value in dataset.report.items():
            if field == "percentiles":
                summary |= {f"length_{percent}_percent": length for percent, length in value.items()}
            elif isinstance(value, (str, int, float)) and field not in ("prefix", "bin_bytes", "idx_bytes"):
                summary[field] = value
        lengths, tokens = dataset.lengths, dataset.tokens
        pieces = {} if model is None else {"piece": [piece_of(model, token) for token in tokens.index.tolist()]}
        shares = {"count": tokens.array, "share": (tokens / tokens.sum()).array}
        tables["summary.csv"].append(pd.DataFrame([name | summary]))
        tables["lengths.csv"].append(pd.DataFrame(name | {"length": lengths.index, "documents": lengths.array}))
        tables["tokens.csv"].append(pd.DataFrame(name | {"id": tokens.index} | pieces | shares))
    made = {name: pd.concat(frames, ignore_index=True) for name, frames in tables.items()}
    made["tokens.csv"] = made["tokens.csv"].sort_values(["dataset", "count", "id"], ascending=[True, False, True])
    return made


def write_tables(datasets: Sequence[Inspected], model: AnyTokenizer | None, folder: Path) -> None:
    """Write ``summary.csv``, ``lengths.csv`` and ``tokens.csv`` into ``folder``."""
    for name, table in dataset_tables(datasets, model).items():
        with published_file(folder / name) as partial:
            table.to_csv(partial, index=False)
