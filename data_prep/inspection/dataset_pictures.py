"""What a dataset holds, as a picture: lengths of documents, and frequencies of tokens."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.inspection.dataset_blocks import Counts
from data_prep.inspection.inspect_dataset import Inspected
from stage.errors import InputError
from stage.limits.replacing import require_same_kind
from stage.optional_packages import import_optional
from stage.publish import published_file

PICTURE_BINS = 60
PICTURE_FORMATS = {".svg": b"<?xml", ".png": b"\x89PNG"}
"""And how such files begin."""


def require_picture_format(path: Path) -> None:
    """Raise InputError before hours of counting rather than after, where the picture could not be drawn."""
    if path.suffix not in PICTURE_FORMATS:
        raise InputError(f"--picture {path}: expected a name that ends in {' or '.join(PICTURE_FORMATS)}")
    begins = PICTURE_FORMATS[path.suffix]
    require_same_kind(path, "--picture", f"a {path.suffix} picture", lambda head: head.startswith(begins))
    import_optional("matplotlib.figure", "matplotlib", "--picture")


def draw_datasets(datasets: Mapping[str, Inspected], path: Path) -> None:
    """A histogram of document lengths, logarithmic in length, and the tokens' shares by their rank; an outline and a
    line per dataset."""
    matplotlib = import_optional("matplotlib", "matplotlib", "--picture")
    figures = import_optional("matplotlib.figure", "matplotlib", "--picture")
    figure = figures.Figure(figsize=(12, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_lengths({name: dataset.lengths for name, dataset in datasets.items()}, left)
    _draw_ranks({name: dataset.tokens for name, dataset in datasets.items()}, right)
    # The same dataset gives the same bytes: no date, and no random names in the SVG.
    with matplotlib.rc_context({"svg.hashsalt": "lengths"}), published_file(path) as partial:
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(partial, format=path.suffix[1:], metadata=metadata)


def _draw_lengths(lengths: Mapping[str, Counts], axes: Any) -> None:
    shortest = min(int(counts.values[0]) for counts in lengths.values())
    longest = max(int(counts.values[-1]) for counts in lengths.values())
    edges = np.unique(np.ceil(np.geomspace(shortest, longest + 1, PICTURE_BINS + 1)))
    axes.set(xscale="log", xlabel="tokens per document", ylabel="documents, % per bin", title="Document lengths")
    for name, counts in lengths.items():
        heights, _ = np.histogram(counts.values, edges, weights=counts.counts)
        axes.stairs(100 * heights / counts.total, edges, label=f"{_literal(name)}: {counts.total:,} documents")
    axes.legend()


def _draw_ranks(tokens: Mapping[str, Counts], axes: Any) -> None:
    """By Zipf's law nearly a straight line."""
    axes.set(xscale="log", yscale="log", xlabel="rank of the token", ylabel="share of all tokens, %", title="Tokens")
    for name, counts in tokens.items():
        shares = 100 * np.sort(counts.counts)[::-1] / counts.total
        axes.plot(np.arange(1, len(shares) + 1), shares, label=f"{_literal(name)}: {len(shares):,} distinct")
    axes.legend()


def _literal(name: str) -> str:
    """Dollars would begin a formula."""
    return name.replace("$", r"\$")
