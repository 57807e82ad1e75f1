"""What is a spike and what is not: BLOOM's, rehearsals', published curves, noise."""

import math

import numpy as np
import numpy.typing as npt
import pytest

from benchmark.run_record.events.mllog import read_log
from benchmark.training.observers.spikes import CALM, LEAST, MOST, RECENT, Spike
from foundation.git import REPOSITORY
from tests.benchmark.training.observers.false_alarms import KINDS, NORM, Noise, alarms, count_false_alarms

PUBLISHED = sorted((REPOSITORY.parent / "shared" / "real_logs" / "v3.0").glob("NVIDIA*/results/*/gpt3/result_0.txt"))

BLOOM = {
    31214: (2.198845, 0.242),
    31215: (2.220424, 0.947),
    31216: (2.595213, 2.390),
    31217: (2.241558, 15.886),
    31218: (2.345279, 145.119),
    31219: (5.098124, 960.351),
    31220: (3.492029, 353.201),
    31221: (3.213059, 379.330),
    31222: (2.804948, 650.246),
    31250: (2.215699, 0.267),
    31251: (2.235667, 0.205),
}
"""Loss and gradient norm by iteration, as its log of 12 April 2022 has them; 31223 to 31249 were left out there."""

REHEARSAL_LOSSES = (
    "6.94 6.82 6.71 6.65 6.58 6.50 6.41 6.31 6.38 6.14 6.03 5.96 5.88 5.82 5.72 5.63 5.64 5.52 5.49 5.43 5.38 "
    "5.26 5.21 5.20 5.11 5.12 4.99 5.01 4.96 4.95 4.92 4.78 4.75 4.72 4.58 4.71 4.59 4.57 4.49 4.47 4.42 4.30 "
    "4.34 4.32 4.25 4.24 4.20 4.11 4.11 4.04 4.09 3.94 4.00 3.99 3.95 3.94 3.86 3.85 3.84 3.85 3.83 3.72 3.71 "
    "3.83 3.76 3.67 3.72 3.70 3.64 3.56 3.58 3.51 3.58 3.52 3.47 3.52 3.49 3.49 3.44 3.62"
)
REHEARSAL_NORMS = (
    "2.25 1.40 1.16 1.09 1.09 1.04 1.05 1.06 22.28 1.30 1.03 1.07 1.12 1.09 1.12 1.00 1.19 1.23 1.32 0.91 2.49 "
    "1.30 1.14 2.15 1.07 1.10 1.24 1.18 1.19 0.90 1.62 1.06 1.34 1.13 1.34 0.86 1.16 0.80 0.86 0.84 0.86 0.83 "
    "0.84 0.75 0.79 0.74 0.78 0.85 0.84 0.81 1.06 0.85 1.11 0.70 1.08 0.89 0.87 0.95 0.79 0.92 1.04 0.91 0.94 "
    "1.18 0.82 0.97 0.90 0.81 0.80 0.79 0.78 0.86 0.79 0.82 0.90 1.12 0.89 0.94 0.77 1.24"
)
"""The first 80 steps of a rehearsal: a fast warm-up in which single norms spike."""


def numbers(text: str) -> npt.NDArray[np.float64]:
    return np.array([float(word) for word in text.split()])


def quiet(steps: int, seed: int = 5) -> list[tuple[float, float]]:
    """Loss and norm of steps in which nothing happens, with the noise of published runs about BLOOM's values."""
    random = np.random.default_rng(seed)
    losses = 2.2 + 0.0097 * random.standard_normal(steps)
    norms = 0.242 * np.exp(0.12 * random.standard_normal(steps))
    return list(zip(losses.tolist(), norms.tolist(), strict=True))


def spikes(figures: list[tuple[float, float]]) -> list[tuple[int, Spike]]:
    return alarms(*np.array(figures).T)


def test_blooms_spike_is_noticed_three_steps_before_its_loss_explodes() -> None:
    recovering = [(2.8 - 0.022 * step, 300.0 * 0.75**step) for step in range(27)]
    before, spike = quiet(100), list(BLOOM.values())
    first = 31214 - len(before)
    ((step, noticed),) = spikes([*before, *spike[:9], *recovering, *spike[9:], *quiet(20, seed=6)])
    assert first + step - 1 == 31216
    assert (noticed.loss, noticed.grad_norm, noticed.in_a_row) == (2.595213, 2.39, 2)  # 31215's norm was high, too
    assert noticed.grad_norm / noticed.expected_norm == pytest.approx(9.9, rel=0.1)


def test_nothing_is_judged_during_warm_up() -> None:
    figures = quiet(RECENT + LEAST)
    for index in range(RECENT + LEAST):
        assert spikes([*figures[:index], (5.0, 100.0), *figures[index + 1 :]]) == []
    ((step, _),) = spikes([*figures, (5.0, 100.0)])
    assert step == RECENT + LEAST + 1


def test_rehearsals_warm_up_with_its_single_high_norms_is_no_spike() -> None:
    losses, norms = numbers(REHEARSAL_LOSSES), numbers(REHEARSAL_NORMS)
    assert norms[8] > 20 * norms[7]
    assert alarms(losses, norms) == []


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ([(2.2, 0.242 * 4)], False),  # clipped, and gone with the next step
        ([(2.2, 0.242 * 4), (2.2, 0.242), (2.2, 0.242 * 4)], False),
        ([(2.2, 0.242 * 4), (2.2, 0.242 * 4)], True),
        ([(2.2, 0.242 * 40)], True),
        ([(2.2 + 0.05, 0.242)], False),  # five times the noise
        ([(2.2 + 0.2, 0.242)], True),
        ([(1.5, 0.242 / 100)], False),  # downwards
        ([(math.nan, 0.242)], True),
        ([(math.inf, 0.242)], True),
    ],
)
def test_what_is_a_spike(last: list[tuple[float, float]], expected: bool) -> None:
    figures = [*quiet(80), *last]
    assert bool(spikes(figures)) is expected
    scaled = [(loss * 4, norm * 1024) for loss, norm in figures]  # its size does not matter
    assert [step for step, _ in spikes(scaled)] == [step for step, _ in spikes(figures)]


def test_one_spike_is_told_once_and_its_values_are_not_learned_from() -> None:
    high = [(3.0, 5.0)] * 20
    figures = [*quiet(80), *high, *quiet(CALM - 1, seed=8), *high, *quiet(CALM, seed=9), *high]
    assert [step for step, _ in spikes(figures)] == [81, len(figures) - len(high) + 1]


def test_new_level_is_learned_anew() -> None:
    figures = [*quiet(80), *[(3.0 + 0.01 * (step % 3), 0.242) for step in range(MOST + RECENT + LEAST + 1)]]
    assert [step for step, _ in spikes([*figures, (4.0, 0.242)])] == [81, len(figures) + 1]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "most"), [(KINDS[0], 0), (KINDS[4], 60)], ids=["normal", "t3"])
def test_false_alarms_are_as_rare_as_stated(kind: Noise, most: int) -> None:
    number, steps = count_false_alarms(kind, 50, seed=3)
    assert steps == 21_600
    assert number <= most
    if kind.degrees == 3.0:
        assert number > 0  # so that the count can fail


@pytest.mark.slow
@pytest.mark.skipif(not PUBLISHED, reason="../shared/real_logs is not there")
def test_published_curves_have_no_spike_and_would_show_one() -> None:
    lengths = []
    for path in PUBLISHED:
        stats = [event.value for event in read_log(path).all("tracked_stats")]
        losses = [one["reduced_train_loss"] for one in stats if isinstance(one, dict) and "reduced_train_loss" in one]
        lengths.append(len(losses))
        norms = np.full(len(losses), NORM)  # which these logs do not have
        assert alarms(np.array(losses), norms) == []
        for index in range(RECENT + LEAST, len(losses), 7):
            spiked = np.array(losses)
            spiked[index] += 0.2
            assert [step for step, _ in alarms(spiked, norms)] == [index + 1]
    assert lengths == [288, 200]
