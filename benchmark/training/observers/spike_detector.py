"""Spikes of loss and gradient norm, found by the run's own last steps. Plain numbers, no tensors.

What is judged is a surprise: a step's value less the median of the RECENT values before it. It is measured in robust
standard deviations, 1.4826 times the median distance of the last surprises from their median. A falling loss, a noisy
one and a small or large batch need no setting therefore. The norm is judged by its logarithm.

A value is *high* when its surprise is more than LOSS_DEVIATIONS (NORM_DEVIATIONS) above the median of the surprises and
the value itself more than LOSS_RISE (NORM_FACTOR) times what was expected. A spike begins when the loss is high once,
the norm NORM_IN_A_ROW times running, or the norm once by NORM_AT_ONCE. A single high norm below that is clipped away
and common: BLOOM saw "a few grad norm spikes" before its first spike of the loss.

Warm-up rule: nothing is judged before LEAST surprises are known, which takes RECENT + LEAST = 32 steps, counted over
restarts, for what is known is part of a checkpoint. High values are never learned from, so that a spike does not raise
its own bounds. A spike is over after CALM steps that are not high; after MOST_STEPS what was learned is dropped, for
then the level has changed for good.

False alarms, computed by ``python -m tests.benchmark.training.observers.false_alarms`` on 864,000 steps of noise each:
Gaussian, as published losses are (white, kurtosis 2.7): none, so fewer than 4e-6 per step, one in 600 runs of 464
steps; nor with a correlation of 0.5. With the heavier tails of Student's t of 5 degrees: 5e-5 per step, one in 50 runs;
of 3 degrees: 5e-4, one in 5. On the two published curves that have the loss of each step (NVIDIA and CoreWeave, round
3.0, 488 losses) and on five rehearsals (1,085 steps, one step's norm 22 times the usual during warm-up): none; the
largest surprises of their losses are 3.6 and 4.3 deviations.
"""

import math
from dataclasses import dataclass

from benchmark.speed_watch.outliers import median, robust_deviation
from benchmark.training.engine.run_progress import SpikeWatch, WatchedValue

RECENT = 8
LEAST, MOST = 24, 64
"""Surprises that are needed, and that are kept."""
LOSS_DEVIATIONS, LOSS_RISE = 10.0, 1.02
NORM_DEVIATIONS, NORM_FACTOR = 8.0, 3.0
NORM_IN_A_ROW = 2
NORM_AT_ONCE = 30.0
CALM = 8
MOST_STEPS = 64
LEAST_DEVIATION = 1e-3
"""Of a surprise, relative to the loss, and of the norm's logarithm: values that hardly differ must not set bounds."""


@dataclass(frozen=True)
class Spike:
    """The step at which a spike was noticed."""

    steps: int
    """Optimizer steps that are done, this one included."""
    began: int
    """Steps that were done after the first one with a high value: at most ``steps``."""
    loss: float
    expected_loss: float
    loss_deviations: float
    """How far the loss's surprise is above the usual, in robust standard deviations."""
    grad_norm: float
    expected_norm: float
    loss_is_high: bool
    norm_is_high: bool

    @property
    def norm_factor(self) -> float:
        return self.grad_norm / self.expected_norm

    @property
    def sudden(self) -> bool:
        """Loss and norm jumped in one step from normal."""
        return self.loss_is_high and self.norm_is_high and self.began == self.steps


@dataclass(frozen=True)
class Calm:
    """The step at which a spike was found to be over."""

    began: int
    """Its first step, as in :class:`Spike`."""
    lasted: int
    """Steps from its first to its last high value."""
    returned: bool
    """Whether loss and norm went back to where they were; otherwise what was learned was dropped."""


def observe(watch: SpikeWatch, steps: int, loss: float, grad_norm: float) -> Spike | Calm | None:
    """Judge a step that was not skipped and learn from it, in ``watch``.

    ``steps``: optimizer steps that are done, this one included. ``loss`` in nats; ``grad_norm``: finite, before
    clipping. The result depends on the arguments alone, to the bit.
    """
    log_norm = math.log(max(grad_norm, 1e-30))
    loss_judged = _judge(watch.loss, loss, LEAST_DEVIATION * abs(loss))
    norm_judged = _judge(watch.log_norm, log_norm, LEAST_DEVIATION)
    loss_is_high = loss_judged is not None and (
        not math.isfinite(loss)
        or (loss_judged.deviations > LOSS_DEVIATIONS and loss > LOSS_RISE * loss_judged.expected)
    )
    norm_is_high = norm_judged is not None and (
        norm_judged.deviations > NORM_DEVIATIONS and log_norm > norm_judged.expected + math.log(NORM_FACTOR)
    )
    _learn(watch.loss, loss, loss_judged, loss_is_high)
    _learn(watch.log_norm, log_norm, norm_judged, norm_is_high)
    watch.norms_high = watch.norms_high + 1 if norm_is_high else 0
    if watch.began is not None:
        return _during(watch, steps, loss_is_high or norm_is_high)
    if loss_judged is None or norm_judged is None:
        return None
    at_once = norm_is_high and log_norm > norm_judged.expected + math.log(NORM_AT_ONCE)
    if not (loss_is_high or watch.norms_high >= NORM_IN_A_ROW or at_once):
        return None
    watch.began = steps - max(0, watch.norms_high - 1)
    watch.last_high = steps
    return Spike(
        steps,
        watch.began,
        loss,
        loss_judged.expected,
        loss_judged.deviations,
        grad_norm,
        math.exp(norm_judged.expected),
        loss_is_high,
        norm_is_high,
    )


@dataclass(frozen=True)
class _Judged:
    expected: float
    surprise: float
    deviations: float


def _judge(watched: WatchedValue, value: float, least_deviation: float) -> _Judged | None:
    """None during warm-up."""
    if len(watched.surprises) < LEAST:
        return None
    expected, usual = float(median(watched.recent)), float(median(watched.surprises))
    deviation = max(float(robust_deviation(watched.surprises)), least_deviation)
    surprise = value - expected
    return _Judged(expected, surprise, (surprise - usual) / deviation)


def _learn(watched: WatchedValue, value: float, judged: _Judged | None, is_high: bool) -> None:
    if is_high or not math.isfinite(value):
        return
    if judged is not None:
        watched.surprises.append(judged.surprise)
    elif len(watched.recent) == RECENT:
        watched.surprises.append(value - float(median(watched.recent)))
    del watched.surprises[:-MOST]
    watched.recent.append(value)
    del watched.recent[:-RECENT]


def _during(watch: SpikeWatch, steps: int, is_high: bool) -> Calm | None:
    """Within a spike: whether it is over."""
    assert watch.began is not None
    if is_high:
        watch.last_high = steps
    returned = steps - watch.last_high >= CALM
    if not returned and steps - watch.began < MOST_STEPS:
        return None
    calm = Calm(watch.began, watch.last_high - watch.began + 1, returned)
    watch.began, watch.last_high, watch.norms_high = None, 0, 0
    if not returned:
        watch.loss, watch.log_norm = WatchedValue(), WatchedValue()
    return calm
