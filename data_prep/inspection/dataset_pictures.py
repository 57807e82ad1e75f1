"""Draw the contents of datasets: lengths of documents, and frequencies of tokens."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from data_prep.inspection.inspect_dataset import Inspected
from stage.errors import InputError
from stage.optional_packages import import_optional
from stage.outputs.publish import published_file, require_same_kind

PICTURE_BINS = 60
PICTURE_FORMATS = {".svg": b"<?xml", ".png": b"\x89PNG"}
"""Endings of names, and the first bytes of such files."""
LONGEST_NAME = 48


def require_picture_format(path: Path) -> None:
    """Raise InputError if the picture could not be drawn, before hours of counting rather than after."""
    if path.suffix not in PICTURE_FORMATS:
        raise InputError(f"--picture {path}: expected a name that ends in {' or '.join(PICTURE_FORMATS)}")
    begins = PICTURE_FORMATS[path.suffix]
    require_same_kind(path, "--picture", f"a {path.suffix} picture", lambda head: head.startswith(begins))
    import_optional("matplotlib.figure", "matplotlib", "--picture")


def draw_datasets(datasets: Sequence[Inspected], path: Path) -> None:
    """Draw a histogram of document lengths, logarithmic in length, and the tokens' shares by their rank.

    Each dataset has an outline and a line.
    """
    matplotlib = import_optional("matplotlib", "matplotlib", "--picture")
    figures = import_optional("matplotlib.figure", "matplotlib", "--picture")
    figure = figures.Figure(figsize=(12, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = _names([dataset.report["prefix"] for dataset in datasets])
    _draw_lengths(names, [dataset.lengths for dataset in datasets], left)
    _draw_ranks(names, [dataset.tokens for dataset in datasets], right)
    # The same dataset gives the same bytes: no date, and no random names in the SVG.
    with matplotlib.rc_context({"svg.hashsalt": "lengths"}), published_file(path) as partial:
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(partial, format=path.suffix[1:], metadata=metadata)


def _names(prefixes: Sequence[str]) -> list[str]:
    """Return the last part of each path for the legend, with its folder if the names alone are equal."""
    paths = [Path(prefix).absolute() for prefix in prefixes]
    names = [path.name for path in paths]
    if len(set(names)) < len(set(paths)):
        names = [f"{path.parent.name}/{path.name}" for path in paths]
    shown = [name.encode(errors="backslashreplace").decode() for name in names]
    shown = [name if len(name) <= LONGEST_NAME else f"…{name[-LONGEST_NAME:]}" for name in shown]
    return [name.replace("$", r"\$") for name in shown]  # dollars would begin a formula


def _draw_lengths(names: Sequence[str], lengths: Sequence["pd.Series[int]"], axes: Any) -> None:
    shortest = min(int(counts.index[0]) for counts in lengths)
    longest = max(int(counts.index[-1]) for counts in lengths)
    edges = np.unique(np.ceil(np.geomspace(shortest, longest + 1, PICTURE_BINS + 1)))
    axes.set(xscale="log", xlabel="tokens per document", ylabel="documents, % per bin", title="Document lengths")
    for name, counts in zip(names, lengths, strict=True):
        heights, _ = np.histogram(counts.index, edges, weights=counts)
        axes.stairs(100 * heights / counts.sum(), edges, label=f"{name}: {counts.sum():,} documents")
    _label_sparsely(axes.xaxis, shortest, longest + 1)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14))  # below, where no line is


def _draw_ranks(names: Sequence[str], tokens: Sequence["pd.Series[int]"], axes: Any) -> None:
    """Draw shares over ranks, which by Zipf's law is nearly a straight line."""
    axes.set(xscale="log", yscale="log", xlabel="rank of the token", ylabel="share of all tokens, %", title="Tokens")
    for name, counts in zip(names, tokens, strict=True):
        shares = 100 * np.sort(counts)[::-1] / counts.sum()
        axes.plot(np.arange(1, len(shares) + 1), shares, label=f"{name}: {len(shares):,} distinct")
    _label_sparsely(axes.xaxis, 1, max(len(counts) for counts in tokens))
    _label_sparsely(axes.yaxis, *axes.get_ylim())
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14))  # below, where no line is


def _label_sparsely(axis: Any, low: float, high: float) -> None:
    """Label a logarithmic axis from ``low`` to ``high`` with a few plain numbers, because matplotlib's own overlap or
    are missing."""
    ticker = import_optional("matplotlib.ticker", "matplotlib", "--picture")
    if high < 10 * low:
        axis.set_major_locator(ticker.MaxNLocator(6, steps=[1, 2, 5, 10]))
    else:
        axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,)))
    axis.set_major_formatter(ticker.StrMethodFormatter("{x:,.10g}"))
    axis.set_minor_formatter(ticker.NullFormatter())
