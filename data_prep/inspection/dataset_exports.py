"""The contents of inspected datasets as pandas tables, as CSV files and as a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from data_prep.inspection.inspect_dataset import Inspected, piece_of
from data_prep.tokenizing.tokenizer import AnyTokenizer
from foundation.errors import InputError
from foundation.optional_packages import import_optional
from foundation.outputs.publish import published_file, require_same_kind

TABLES = ("summary.csv", "lengths.csv", "tokens.csv")
PICTURE_BINS = 60
LONGEST_NAME = 48
PICTURE_FORMATS = {".svg": b"<?xml", ".png": b"\x89PNG"}
"""Endings of names, and the first bytes of such files."""


def require_exports(picture: Path | None, tables: Path | None) -> None:
    """Raise InputError if a picture or a table could not be written, before hours of counting rather than after."""
    if picture is not None:
        if picture.suffix not in PICTURE_FORMATS:
            raise InputError(f"--picture {picture}: expected a name that ends in {' or '.join(PICTURE_FORMATS)}")
        begins = PICTURE_FORMATS[picture.suffix]
        require_same_kind(picture, "--picture", f"a {picture.suffix} picture", lambda head: head.startswith(begins))
        import_optional("matplotlib.figure", "matplotlib", "--picture")
    if tables is not None:
        for name in TABLES:
            require_same_kind(tables / name, "--tables", "such a table", lambda head: head.startswith(b"dataset,"))


def dataset_tables(datasets: Sequence[Inspected], model: AnyTokenizer | None) -> dict[str, pd.DataFrame]:
    """Return the tables by the names of their files, each with a column ``dataset``.

    summary.csv has a row per dataset: the figures of its report. lengths.csv has a row per ``length`` in tokens:
    ``documents`` of that length. tokens.csv has a row per token that occurs, the most frequent first: ``id``, ``piece``
    (if a tokenizer is given; empty for an id beyond its pieces), ``count``, and ``share`` of all tokens.
    """
    tables: dict[str, list[pd.DataFrame]] = {name: [] for name in TABLES}
    for dataset in datasets:
        name = {"dataset": _as_text(dataset.report["prefix"])}
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


def draw_datasets(datasets: Sequence[Inspected], path: Path) -> None:
    """Draw the share of documents of each length, and each token's share by its rank, which by Zipf's law is nearly a
    straight line; each dataset has an outline and a line."""
    matplotlib = import_optional("matplotlib", "matplotlib", "--picture")
    figure = import_optional("matplotlib.figure", "matplotlib", "--picture").Figure(
        figsize=(12, 5), layout="constrained"
    )
    left, right = figure.subplots(1, 2)
    left.set(xscale="log", xlabel="tokens per document", ylabel="documents, % per bin", title="Document lengths")
    right.set(xscale="log", yscale="log", xlabel="rank of the token", ylabel="share of all tokens, %", title="Tokens")
    shortest = min(dataset.report["shortest"] for dataset in datasets)
    longest = max(dataset.report["longest"] for dataset in datasets)
    edges = np.unique(np.ceil(np.geomspace(shortest, longest + 1, PICTURE_BINS + 1)))
    for dataset in datasets:
        place = "/".join(Path(dataset.report["prefix"]).absolute().parts[-2:])  # compared ones often share their name
        shown = _as_text(place)
        shown = shown if len(shown) <= LONGEST_NAME else f"…{shown[-LONGEST_NAME:]}"  # wider, it would push axes out
        name = shown.replace("$", r"\$")  # dollars would begin a formula
        documents, tokens = dataset.lengths, dataset.tokens
        heights, _ = np.histogram(documents.index, edges, weights=documents)
        left.stairs(100 * heights / documents.sum(), edges, label=f"{name}: {documents.sum():,} documents")
        shares = 100 * np.sort(tokens)[::-1] / tokens.sum()
        right.plot(np.arange(1, len(shares) + 1), shares, label=f"{name}: {len(shares):,} distinct")
    for axes in (left, right):
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14))  # below, where no line is
    metadata: dict[str, Any] | None = {"Date": None} if path.suffix == ".svg" else None
    # The same dataset gives the same bytes: no date, and no random names in the SVG.
    with matplotlib.rc_context({"svg.hashsalt": "lengths"}), published_file(path) as partial:
        figure.savefig(partial, format=path.suffix[1:], metadata=metadata)


def _as_text(name: str) -> str:
    """Return the name of a file, which need not be UTF-8, in a form that can be written."""
    return name.encode(errors="backslashreplace").decode()
