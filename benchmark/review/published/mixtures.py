"""Whether a curve is made of others: their blend, taken from them point by point, their noise moved to another curve,
or one of them between its evaluations. Copies of a single run are found by ``fingerprint.py``.

Every honest run has noise of its own, which no sum of other runs explains. How close the 117 distinct published runs
come, each laid onto the others by least squares (docs/facts/mlperf_review.md 6.10), stands beside the limits, which are
about half of that.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]

FEWEST_VALUES = 18
MOST_VALUES = 400
SHORTER_BY = 2
"""Evaluations by which a run may be shorter than the one that it is laid onto."""
NEAREST = ((2, 32), (3, 20))
"""How many make a mixture, and of how many runs, by their likeness alone, all combinations are tried; a blend of two is
tried of all."""
MOST_OTHERS = 120
ALONE = 3e-5
"""A run that leaves no more than this is a copy by itself (``fingerprint.WHOLE``)."""
SHARES = (0.05, 3.0)
"""Of a run in a blend, either sign; less is no part of it."""
READ_VALUES = 20
STRETCHES = tuple(round(0.90 + 0.02 * number, 2) for number in range(11))
BETWEEN = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Evaluations by which, and shares by which, a curve is read at other tokens than its own."""


@dataclass(frozen=True)
class Closeness:
    """Standard deviation of what is left: below the first it is made of the others, below the second one asks."""

    made: float
    alike: float


BLEND = Closeness(3e-5, 4e-5)  # of two runs 6.1e-5, of three 6.3e-5
CHOICE = Closeness(2e-5, 3e-5)  # of two runs 6.3e-5, of three 4.0e-5
NOISE = Closeness(5e-5, 7e-5)  # forwards 9.6e-5, backwards 1.0e-4
READ_BETWEEN = Closeness(2.5e-5, 4e-5)  # 5.9e-5
BENT = Closeness(4e-5, 5.5e-5)  # 7.4e-5
NOISES = Closeness(3e-5, 4e-5)  # 6.0e-5
BUT_FOR_SOME = Closeness(1.2e-5, 1.6e-5)  # 2.5e-5
SOME = 5
"""Values of a blend that may be drawn anew."""
MOST_BUT_FOR_SOME = 60
"""Runs, by their likeness, of which pairs are tried so."""
ROUNDS = 5
"""In which the values that fit worst are left out."""


@dataclass(frozen=True)
class Curve:
    """A run's evaluations, without the last one, by which runs of different length are told apart."""

    name: str
    values: tuple[float, ...]
    """Log perplexities."""
    usual: tuple[float, ...]
    """Those of the median curve of its batch size at the same tokens."""
    published: bool


@dataclass(frozen=True)
class Mixture:
    """What a curve is made of."""

    what: str
    """In words that follow "the run has"."""
    made: bool
    """False: only a reason to ask."""


def curve(name: str, values: Sequence[float], usual: Sequence[float], published: bool) -> Curve | None:
    """None where there are too few values, or one is no number."""
    kept, base = tuple(values[:MOST_VALUES][:-1]), tuple(usual[:MOST_VALUES][:-1])
    sound = len(kept) >= FEWEST_VALUES and bool(np.isfinite(kept).all() and np.isfinite(base).all())
    return Curve(name, kept, base, published) if sound else None


@lru_cache(maxsize=64)
def made_of(one: Curve, before: tuple[Curve, ...], after: tuple[Curve, ...] = ()) -> Mixture | None:
    """What ``one`` is made of, among runs ``before`` it and ``after`` it; None: nothing, or a copy of a single run.

    Of a run and the one whose noise it has, only the later is said to have it; of a run and those it is blended of, the
    blend alone.
    """
    others = _long_enough(one, (*before, *after))
    if not others:
        return None
    with np.errstate(all="ignore"):  # values of strangers overflow and are no numbers
        nearest, least = _nearest(one, others)
        if least < ALONE:
            return None
        found = [
            *_blends(one, nearest),
            *_choices(one, nearest),
            *_blends_but_for_some(one, nearest),
            *_bent(one, nearest),
            *_two_noises(one, nearest),
            *_noises(one, _long_enough(one, before)),
            *_between(one, before),
        ]
    return next((mixture for mixture in found if mixture.made), found[0] if found else None)


def _long_enough(one: Curve, others: Sequence[Curve]) -> list[Curve]:
    return [other for other in others if len(other.values) >= max(FEWEST_VALUES, len(one.values) - SHORTER_BY)]


def _cut(one: Curve, others: Sequence[Curve]) -> tuple[Array, Array]:
    """``one`` and the others, as long as the shortest of them."""
    length = min(len(one.values), *(len(other.values) for other in others))
    return np.array(one.values[:length]), np.array([other.values[:length] for other in others])


def _nearest(one: Curve, others: Sequence[Curve]) -> tuple[list[Curve], float]:
    """The likest of the others, and what the likest of all leaves unexplained."""
    _, left = _line(*_cut(one, others))
    return [others[place] for place in np.argsort(left)[:MOST_OTHERS]], float(left.min(initial=np.inf))


def _line(mine: Array, theirs: Array) -> tuple[Array, Array]:
    """Slope of each row laid onto ``mine`` by a straight line, and the standard deviation of what is left."""
    y, x = mine - mine.mean(), theirs - theirs.mean(axis=1, keepdims=True)
    slope = (x @ y) / np.square(x).sum(axis=1)
    left = np.sqrt(np.square(y - slope[:, None] * x).sum(axis=1) / (len(y) - 2))
    return slope, np.where(np.isfinite(left), left, np.inf)


def _combinations(count: int, most: Sequence[tuple[int, int]]) -> Iterator[Any]:
    """Places of all pairs, then of all triples, of as many as are tried."""
    for parts, tried in most:
        if count >= parts:
            yield np.array(list(itertools.combinations(range(min(count, tried)), parts)))


def _blends(one: Curve, others: Sequence[Curve]) -> Iterator[Mixture]:
    """The best sum of two, and of three, with any shares and a constant."""
    mine, theirs = _cut(one, others)
    published = np.array([other.published for other in others])
    y, x = mine - mine.mean(), theirs - theirs.mean(axis=1, keepdims=True)
    unit = np.sqrt(np.square(x).mean())
    products, onto = x @ x.T / unit**2, x @ y / unit**2
    for places in _combinations(len(others), ((2, MOST_OTHERS), NEAREST[1])):
        parts = places.shape[1]
        matrices = products[places[:, :, None], places[:, None, :]] + 1e-12 * np.eye(parts)
        shares = np.linalg.solve(matrices, onto[places][..., None])[..., 0]
        real = (np.abs(shares) > SHARES[0]) & (np.abs(shares) < SHARES[1])
        # a run is not made of its own blend: only published ones can be subtracted
        allowed = real.all(axis=1) & ((shares > 0).all(axis=1) | published[places].all(axis=1))
        explained = (shares * onto[places]).sum(axis=1) * unit**2
        left = np.where(allowed, np.maximum(y @ y - explained, 0) / (len(y) - parts - 1), np.inf)
        best = int(np.argmin(left))
        spread = float(np.sqrt(left[best]))
        if spread < BLEND.alike:
            pairs = zip(shares[best], places[best], strict=True)
            words = " and ".join(f"{share:.2f} of {others[place].name}" for share, place in pairs)
            yield Mixture(f"a curve that is {words}, to {spread:.1e}", spread < BLEND.made)


def _blends_but_for_some(one: Curve, others: Sequence[Curve]) -> Iterator[Mixture]:
    """A blend of two, of which a few values were changed: least squares over those that fit best."""
    mine, theirs = _cut(one, others[:MOST_BUT_FOR_SOME])
    kept = len(mine) - SOME
    for places in _combinations(len(theirs), ((2, MOST_BUT_FOR_SOME),)):
        rows = theirs[places] - theirs[places].mean(axis=2, keepdims=True)
        table = np.concatenate([np.ones((len(places), 1, len(mine))), rows / np.sqrt(np.square(rows).mean())], axis=1)
        counted = np.ones((len(places), len(mine)))
        for _ in range(ROUNDS):
            weighed = table * counted[:, None]
            matrices = weighed @ table.transpose(0, 2, 1) + 1e-12 * np.eye(3)
            shares = np.linalg.solve(matrices, (weighed @ mine)[..., None])
            off = np.abs(mine - (shares * table).sum(axis=1))
            counted = (off <= np.partition(off, kept - 1, axis=1)[:, kept - 1 : kept]).astype(np.float64)
        parts = shares[:, 1:, 0] / np.sqrt(np.square(rows).mean())
        left = np.sqrt((counted * np.square(off)).sum(axis=1) / (kept - 3))
        left = np.where((parts > SHARES[0]).all(axis=1), left, np.inf)
        best = int(np.argmin(left))
        if left[best] < BUT_FOR_SOME.alike:
            names = " and ".join(others[place].name for place in places[best])
            words = f"a blend of {names} in all but {SOME} values, to {left[best]:.1e}"
            yield Mixture(words, bool(left[best] < BUT_FOR_SOME.made))


def _bent(one: Curve, others: Sequence[Curve]) -> Iterator[Mixture]:
    """Another run with a parabola added."""
    mine, theirs = _cut(one, others)
    time = np.linspace(-1, 1, len(mine))
    mine, theirs = _without(mine, theirs, np.stack([np.ones_like(time), time, time**2], axis=1))
    slopes = (theirs @ mine) / np.square(theirs).sum(axis=1)
    left = np.sqrt(np.square(mine - slopes[:, None] * theirs).sum(axis=1) / (len(mine) - 4))
    left = np.where((np.abs(slopes) > 0.5) & (np.abs(slopes) < 2), left, np.inf)
    best = int(np.argmin(left))
    if left[best] < BENT.alike:
        words = f"the curve of {others[best].name}, bent by a parabola, to {left[best]:.1e}"
        yield Mixture(words, bool(left[best] < BENT.made))


def _two_noises(one: Curve, others: Sequence[Curve]) -> Iterator[Mixture]:
    """The noise of two runs, added to the median curve."""
    mine, theirs = _cut(one, others[: NEAREST[0][1]])
    usual, known = np.array(one.usual[: len(mine)]), np.array([other.published for other in others])
    mine, theirs = _without(mine, theirs, np.stack([np.ones_like(usual), usual], axis=1))
    for places in _combinations(len(theirs), NEAREST[:1]):
        rows = theirs[places] / np.sqrt(np.square(theirs).mean())
        matrices = rows @ rows.transpose(0, 2, 1) + 1e-12 * np.eye(2)
        shares = np.linalg.solve(matrices, (rows @ mine)[..., None])
        left = np.sqrt(np.square(mine - (shares * rows).sum(axis=1)).sum(axis=1) / (len(mine) - 4))
        parts = shares[..., 0] / np.sqrt(np.square(theirs).mean())
        size = np.abs(parts)
        # as of blends: only published ones can be subtracted
        allowed = (
            (size > 0.2).all(axis=1) & (size < 1.5).all(axis=1) & ((parts > 0).all(axis=1) | known[places].all(axis=1))
        )
        left = np.where(allowed, left, np.inf)
        best = int(np.argmin(left))
        if left[best] < NOISES.alike:
            names = " and ".join(others[place].name for place in places[best])
            yield Mixture(f"the noise of {names}, to {left[best]:.1e}", bool(left[best] < NOISES.made))


def _without(mine: Array, theirs: Array, columns: Array) -> tuple[Array, Array]:
    """What is left of curves when these columns are fitted to them."""
    base, _ = np.linalg.qr(columns)
    return mine - base @ (base.T @ mine), theirs - (theirs @ base) @ base.T


def _choices(one: Curve, others: Sequence[Curve]) -> Iterator[Mixture]:
    """Every value that of one of two, or three, runs, but for a constant, by which one of a few of them fits."""
    mine, theirs = _cut(one, others)
    off = mine - theirs
    for places in _combinations(len(others), NEAREST):
        pairs = off[places]
        constants = np.concatenate([np.zeros((len(places), 1)), *(pairs[:, :, at] for at in _some(len(mine)))], axis=1)
        rest = np.abs(pairs[:, None] - constants[:, :, None, None]).min(axis=2)
        left = np.sqrt(np.square(rest).mean(axis=2)).min(axis=1)
        best = int(np.argmin(left))
        if left[best] < CHOICE.alike:
            names = " or ".join(others[place].name for place in places[best])
            yield Mixture(f"values that are those of {names}, to {left[best]:.1e}", bool(left[best] < CHOICE.made))


def _some(count: int) -> tuple[int, ...]:
    return 1, count // 2, count - 2


def _noises(one: Curve, others: Sequence[Curve]) -> Iterator[Mixture]:
    """The distances of another run from the median curve of its batch size: as they are, mirrored, or backwards; or
    hardly any."""
    noise = np.subtract(one.values, one.usual)
    _, left = _line(np.array(one.values), np.array([one.usual]))
    if left[0] < NOISE.alike:
        yield Mixture(f"the median curve of its batch size, to {left[0]:.1e}", bool(left[0] < NOISE.made))
    theirs = [np.subtract(other.values, other.usual)[: len(noise)] for other in others]
    names = [other.name for other in others]
    yield from _noise_in(noise, theirs, names, "")
    for moved in range(-SHORTER_BY, SHORTER_BY + 1):  # the last values may be missing in either
        backwards = [row[: len(row) + min(moved, 0)][::-1] for row in theirs]
        yield from _noise_in(noise[max(moved, 0) :], backwards, names, ", backwards")


def _noise_in(noise: Array, theirs: Sequence[Array], names: Sequence[str], how: str) -> Iterator[Mixture]:
    length = min(len(noise), *(len(row) for row in theirs), MOST_VALUES)
    if not names or length < FEWEST_VALUES - SHORTER_BY:
        return
    slopes, left = _line(noise[:length], np.array([row[:length] for row in theirs]))
    left = np.where((np.abs(slopes) > 0.5) & (np.abs(slopes) < 2), left, np.inf)
    best = int(np.argmin(left))
    if left[best] < NOISE.alike:
        mirrored = ", mirrored" if slopes[best] < 0 else ""
        words = f"the noise of {names[best]} on another curve{mirrored}{how}, to {left[best]:.1e}"
        yield Mixture(words, bool(left[best] < NOISE.made))


def _between(one: Curve, others: Sequence[Curve]) -> Iterator[Mixture]:
    """Another run read between its evaluations, or faster or slower, from the third value on."""
    length = min(len(one.values), READ_VALUES)
    if not others:
        return
    tables = np.array([_read_elsewhere(other.values) for other in others])[:, :, 2:length]
    slopes, left = _line(np.array(one.values[2:length]), tables.reshape(-1, length - 2))
    left = np.where((slopes > 0.5) & (slopes < 2), left, np.inf)
    best = int(np.argmin(left))
    if left[best] < READ_BETWEEN.alike:
        name = others[best // tables.shape[1]].name
        words = f"the curve of {name}, read between its evaluations, to {left[best]:.1e}"
        yield Mixture(words, bool(left[best] < READ_BETWEEN.made))


@lru_cache(maxsize=512)
def _read_elsewhere(values: tuple[float, ...]) -> Array:
    """A row per way to read it; NaN beyond its end."""
    rows = []
    for stretch, start in itertools.product(STRETCHES, BETWEEN):
        if stretch != 1 or start not in (0, 1):
            places = np.arange(READ_VALUES) * stretch + start
            rows.append(np.where(places <= len(values) - 1, np.interp(places, range(len(values)), values), np.nan))
    return np.array(rows)
