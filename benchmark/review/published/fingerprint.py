"""How alike two runs are, whatever was done to hide it: times shifted or stretched, values moved, rounded or made
noisy, a stretch of one run put into another.

Two honest runs never agree closely: among the 117 distinct published runs (6,786 pairs) no two have curves that, one
shifted and stretched onto the other, lie within 1.0e-4 of each other (standard deviation), and none share more than one
value (docs/facts/mlperf_review.md 6.8). The limits below are about half of what was seen there.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from benchmark.results.run_summary import RunSummary
from benchmark.review.published.published_traces import DECIMALS, PublishedTrace

Array = np.ndarray[Any, np.dtype[np.float64]]

MOST_EVALUATIONS = 400
"""Compared; the longest published run has 29."""
MOST_STEPS = 5_000
SHIFTS = range(-2, 3)
"""Places by which the evaluations of one run are moved against the other's."""


@dataclass(frozen=True)
class Window:
    """A stretch of evaluations in which two runs differ by a constant and a little noise."""

    evaluations: int
    copied: float
    """Standard deviation of the difference below which it is a copy …"""
    alike: float
    """… and below which there is reason to ask."""


WINDOWS = (
    Window(6, 2e-6, 4e-6),  # two honest runs: at least 9.1e-6
    Window(8, 8e-6, 1.3e-5),  # 2.4e-5
    Window(10, 1.6e-5, 2.5e-5),  # 4.2e-5
    Window(12, 2.4e-5, 3.3e-5),  # 5.3e-5
    Window(16, 4e-5, 5e-5),  # 7.8e-5
)
WHOLE = Window(18, 6e-5, 8e-5)
"""And more; one curve shifted and stretched onto the other. Two honest runs: at least 1.0e-4."""
SHARED_VALUES = 5
"""Equal to :data:`DECIMALS` decimals, wherever they stand; published runs share at most one."""
FEWEST_INTERVALS = 10
SHORTEST_INTERVAL_MS = 1000
"""Median below which time stamps in milliseconds say too little."""
INTERVAL_NOISE_MS = 1.5
"""By which rounding moves an interval and the one it is compared with."""
SAME_INTERVALS = 0.85
"""Share of intervals that agree; published runs: at most 0.56."""
INTERVAL_PATTERN = (0.03, 0.05)
"""Spread of the difference of two runs' intervals by the spread of the intervals: a copy, a reason to ask.

Published runs: at least 0.07, in three of one system whose speed stepped down at the same evaluation; else 0.14.
"""
FEWEST_STEPS = 50
STEP_PATTERN = (0.05, 0.1)
"""The same of single steps; published runs: at least 0.26."""


@dataclass(frozen=True)
class Fingerprint:
    """What a run cannot have in common with another one."""

    log_perplexities: tuple[float, ...]
    """NaN where the log has no number."""
    intervals_ms: tuple[float, ...]
    """From evaluation to evaluation: without the first one, which warms up and is alike in runs of one system."""
    step_s: tuple[float, ...] = ()


@dataclass(frozen=True)
class Likeness:
    """What two runs have in common."""

    what: str
    """In words that follow "the run has …"."""
    copied: bool
    """False: only a reason to ask."""


@dataclass(frozen=True)
class Collection:
    """Runs to compare with, stacked so that all of them are compared at once."""

    members: tuple[Fingerprint, ...]
    values: Array
    """A row per run, the tail filled up with NaN."""
    intervals: Array
    shared: tuple[frozenset[float], ...]
    """The values of each, rounded."""


def of_run(run: RunSummary) -> Fingerprint:
    evaluations = run.evaluations[:MOST_EVALUATIONS]
    return Fingerprint(
        tuple(np.nan if one.log_perplexity is None else float(one.log_perplexity) for one in evaluations),
        tuple(float(after.time_ms - before.time_ms) for before, after in itertools.pairwise(evaluations)),
        tuple(float(one.value) for one in run.step_seconds[:MOST_STEPS]),
    )


def of_published(run: PublishedTrace) -> Fingerprint:
    return Fingerprint(run.log_perplexities, tuple(map(float, run.intervals_ms[1:])))


def collection(members: Sequence[Fingerprint]) -> Collection:
    return Collection(
        tuple(members),
        _stacked([one.log_perplexities for one in members]),
        _stacked([one.intervals_ms for one in members]),
        tuple(_rounded(one) for one in members),
    )


def likeness(one: Fingerprint, others: Collection) -> list[Likeness | None]:
    """For every other run, the surest thing it has in common with ``one``; None: nothing but what honest runs have."""
    with np.errstate(all="ignore"):  # values of strangers overflow and are no numbers
        kinds = (
            _shared_values(one, others),
            _alike_windows(one, others),
            _whole_curves(one, others),
            _same_intervals(one, others),
            [_same_steps(one, other) for other in others.members],
        )
    return [_surest(seen) for seen in zip(*kinds, strict=True)]


def _surest(seen: Sequence[Likeness | None]) -> Likeness | None:
    found = [one for one in seen if one is not None]
    return next((one for one in found if one.copied), found[0] if found else None)


def _shared_values(one: Fingerprint, others: Collection) -> list[Likeness | None]:
    mine = _rounded(one)
    fewest = min(SHARED_VALUES, max(2, len(one.log_perplexities)))
    return [_share(len(mine & theirs), len(mine), fewest) for theirs in others.shared]


def _share(count: int, all_values: int, fewest: int) -> Likeness | None:
    return Likeness(f"{count} of its {all_values} values", copied=True) if count >= fewest else None


def _alike_windows(one: Fingerprint, others: Collection) -> list[Likeness | None]:
    """Stretches of evaluations that differ by a constant."""
    found: list[Likeness | None] = [None] * len(others.members)
    width = others.values.shape[1]
    for window in WINDOWS:
        if width < window.evaluations:
            continue
        least = np.full(len(found), np.inf)
        for shift in SHIFTS:
            difference = others.values - _moved(one.log_perplexities, shift, width)
            if np.isfinite(difference).sum(axis=1).max(initial=0) >= window.evaluations:
                spread = sliding_window_view(difference, window.evaluations, axis=1).std(axis=2)
                least = np.minimum(least, np.where(np.isfinite(spread), spread, np.inf).min(axis=1))
        for row in np.flatnonzero(least < window.alike):
            before, copied = found[row], bool(least[row] < window.copied)
            if before is None or (copied and not before.copied):
                words = f"{window.evaluations} evaluations in a row, but for a constant and noise of {least[row]:.1e}"
                found[row] = Likeness(words, copied)
    return found


def _whole_curves(one: Fingerprint, others: Collection) -> list[Likeness | None]:
    """One curve laid onto the other by a straight line."""
    found: list[Likeness | None] = [None] * len(others.members)
    middle = np.nanmedian(one.log_perplexities) if np.isfinite(one.log_perplexities).any() else 0.0
    for shift in SHIFTS:
        theirs = others.values - middle
        mine = np.broadcast_to(_moved(one.log_perplexities, shift, theirs.shape[1]) - middle, theirs.shape)
        known = np.isfinite(mine) & np.isfinite(theirs)
        count = known.sum(axis=1)
        mine, theirs = _centred(mine, known), _centred(theirs, known)
        slope = (mine * theirs).sum(axis=1) / (mine * mine).sum(axis=1)
        spread = np.sqrt((np.square(theirs - slope[:, None] * mine) * known).sum(axis=1) / count)
        fits = (count >= WHOLE.evaluations) & (spread < WHOLE.alike) & (slope > 0.5) & (slope < 2)
        for row in np.flatnonzero(fits):
            words = f"its curve, to {spread[row]:.1e} once it is shifted and stretched"
            before, copied = found[row], bool(spread[row] < WHOLE.copied)
            if before is None or (copied and not before.copied):
                found[row] = Likeness(words, copied)
    return found


def _same_intervals(one: Fingerprint, others: Collection) -> list[Likeness | None]:
    found: list[Likeness | None] = [None] * len(others.members)
    for shift in SHIFTS:
        theirs = others.intervals
        mine = np.broadcast_to(_moved(one.intervals_ms, shift, theirs.shape[1]), theirs.shape)
        known = np.isfinite(mine) & np.isfinite(theirs)
        mine, theirs = np.where(known, mine, np.nan), np.where(known, theirs, np.nan)
        my_median, their_median = _medians(mine), _medians(theirs)
        noise = INTERVAL_NOISE_MS / np.minimum(my_median, their_median)
        mine, theirs = mine / my_median[:, None], theirs / their_median[:, None]
        count = known.sum(axis=1)
        same = (np.abs(mine - theirs) <= noise[:, None]).sum(axis=1) / count
        pattern = _spreads(mine - theirs) / np.maximum(np.minimum(_spreads(mine), _spreads(theirs)), noise)
        enough = (count >= FEWEST_INTERVALS) & (np.minimum(my_median, their_median) >= SHORTEST_INTERVAL_MS)
        for row in np.flatnonzero(enough & ((same >= SAME_INTERVALS) | (pattern < INTERVAL_PATTERN[1]))):
            copied = bool(same[row] >= SAME_INTERVALS or pattern[row] < INTERVAL_PATTERN[0])
            before = found[row]
            if before is None or (copied and not before.copied):
                words = "its times between evaluations, shifted or stretched"
                found[row] = Likeness(words if copied else f"nearly {words}", copied)
    return found


def _same_steps(one: Fingerprint, other: Fingerprint) -> Likeness | None:
    count = min(len(one.step_s), len(other.step_s))
    if count <= FEWEST_STEPS:
        return None
    both = np.array([one.step_s[1:count], other.step_s[1:count]])
    both = both / _medians(both)[:, None]
    pattern = float(_spreads(both[:1] - both[1:])[0] / max(float(_spreads(both).min()), 1e-12))
    return Likeness("the times of its steps", pattern < STEP_PATTERN[0]) if pattern < STEP_PATTERN[1] else None


def _rounded(one: Fingerprint) -> frozenset[float]:
    return frozenset(round(value, DECIMALS) for value in one.log_perplexities if np.isfinite(value))


def _stacked(rows: Sequence[Sequence[float]]) -> Array:
    table = np.full((len(rows), max([len(row) for row in rows], default=0)), np.nan)
    for place, row in enumerate(rows):
        table[place, : len(row)] = row
    return table


def _moved(numbers: Sequence[float], shift: int, width: int) -> Array:
    """``numbers`` at their places plus ``shift``, in an array of that width."""
    row = np.full(width, np.nan)
    kept = np.array(numbers[max(0, -shift) : max(0, width - shift)], dtype=np.float64)
    start = max(0, shift)
    row[start : start + len(kept)] = kept[: max(0, width - start)]
    return row


def _centred(table: Array, known: Any) -> Array:
    """Rows less their means over what is known of both; 0 elsewhere."""
    filled = np.where(known, table, 0)
    means = filled.sum(axis=1, keepdims=True) / known.sum(axis=1, keepdims=True)
    return np.where(known, filled - means, 0)


def _medians(table: Array) -> Array:
    """Of each row's numbers, the lower of two middle ones; NaN for a row without any."""
    if table.shape[1] == 0:
        return np.full(len(table), np.nan)
    places = np.maximum((np.isfinite(table).sum(axis=1) - 1) // 2, 0)
    ordered: Array = np.sort(table, axis=1)  # NaN comes last
    return np.asarray(ordered[np.arange(len(table)), places])


def _spreads(table: Array) -> Array:
    """Median distance of each row from its median: one stall does not hide the rest."""
    return _medians(np.abs(table - _medians(table)[:, None]))
