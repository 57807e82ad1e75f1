"""Forecast how long a run still takes to its target: a note at each evaluation, and every few minutes between them."""

import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmark.config.run_config import Benchmark
from benchmark.config.target_forecast import forecast
from benchmark.events.event import Event

EVERY_S = 180.0
"""Seconds between notes when there is no evaluation."""
FEWEST_STEPS = 3
"""Steps of this process before the first note: the first ones take longer."""
LATEST_STEPS = 100
"""Number of latest steps whose median is the time of a step."""


class TargetEta:
    """Make the note ``eta`` from steps and evaluations (``Follow`` in event.py).

    Times are those of this process, so that after a restart on other machines their speed counts.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        evaluations: Sequence[tuple[int, float]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``evaluations``: trained tokens and log perplexity of the evaluations before this process began."""
        self._benchmark, self._tokens_per_step, self._clock = benchmark, benchmark.tokens_per_step, clock
        self._evaluations = list(evaluations)
        self._step_s: deque[float] = deque(maxlen=LATEST_STEPS)
        self._evaluation_s: list[float] = []
        self._steps, self._pauses_s = 0, 0.0
        """Steps of this process, and the seconds that checkpoints and audits took between them."""
        self._said_at: float | None = None

    def follow(self, event: Event) -> tuple[str, Mapping[str, Any]] | None:
        fields = event.metadata
        match event.key:
            case "step":
                self._steps += 1
                self._step_s.append(fields["step_s"])
                if self._said_at is None or self._clock() - self._said_at >= EVERY_S:
                    return self._note("step", fields["trained_tokens"])
            case "evaluation":
                self._evaluations.append((fields["trained_tokens"], fields["log_perplexity"]))
                self._evaluation_s.append(fields["seconds"])
                if fields["target"] is None or fields["log_perplexity"] > fields["target"]:
                    return self._note("evaluation", fields["trained_tokens"])
            case "checkpoint" | "audit":
                self._pauses_s += fields["seconds"]
        return None

    def _note(self, after: str, trained_tokens: int) -> tuple[str, Mapping[str, Any]] | None:
        benchmark = self._benchmark
        end = (benchmark.last_iteration - benchmark.start_iteration) * self._tokens_per_step
        if self._steps < FEWEST_STEPS or trained_tokens >= end:
            return None
        found = forecast(benchmark, self._evaluations, trained_tokens)
        if found is None and benchmark.target_log_perplexity is not None:
            return None
        tokens, low, high = (end, end, end) if found is None else (found.tokens, found.low, found.high)
        self._said_at = self._clock()
        return "eta", {
            "after": after,
            "trained_tokens": trained_tokens,
            "target": benchmark.target_log_perplexity,
            "target_tokens": min(tokens, end),
            "target_tokens_low": min(low, end),
            "target_tokens_high": min(high, end),
            "seconds": self._seconds(trained_tokens, min(tokens, end)),
            "seconds_low": self._seconds(trained_tokens, min(low, end)),
            "seconds_high": self._seconds(trained_tokens, min(high, end)),
            "step_s": statistics.median(self._step_s),
            "basis": "end of training" if found is None else found.basis,
            "reaches_target": found is not None and tokens <= end,
        }

    def _seconds(self, now: int, until: int) -> float:
        """Return the seconds from ``now`` to ``until`` trained tokens: steps, evaluations, and pauses at their rate so
        far."""
        steps = (until - now) / self._tokens_per_step
        interval = self._benchmark.eval_interval
        evaluations = until // self._tokens_per_step // interval - now // self._tokens_per_step // interval
        each_s = statistics.median(self._evaluation_s) if self._evaluation_s else 0.0
        return steps * (statistics.median(self._step_s) + self._pauses_s / self._steps) + evaluations * each_s
