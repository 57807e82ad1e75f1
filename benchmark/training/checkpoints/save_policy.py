"""Decide when a run saves by itself, from the cost of a save and the mean time between failures.

Young's formula, sqrt(2 x cost x mean time between failures), is the interval at which the pauses for saving and the
steps lost to failures add up to the least. Two bounds apply: the background writes at most half of the time, and no
failure costs more than a tenth of an expected run; the second takes precedence.
"""

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.run_sections import SaveOptions
from benchmark.config.system_config import System
from model.decoder_sizes import DecoderSizes
from model.flops import num_parameters

CHECKPOINT_BYTES_PER_PARAMETER = 12
"""Bytes for the FP32 weights and both of Adam's moments."""
COPY_BYTES_PER_S = 2e9
"""Bytes per second from a device to its host while the others copy too. Pauses are estimated from it until the first is
measured. A cautious guess; a link of its own carries ten times as much."""
MOST_OF_A_RUN = 0.1
WRITING_SHARE = 0.5
MEASURED_STEPS = 2
"""Steps measured before an interval is chosen. The first step of a process, which compiles and allocates, is not
counted."""
KEPT_STEPS, KEPT_SAVES = 64, 9
"""Number of latest measurements that the medians are taken of."""


@dataclass(frozen=True)
class SaveInterval:
    """The interval between saves, and the figures it follows from."""

    seconds: float
    pause_s: float | None
    """Seconds that a save pauses training; None where the interval was given as an option."""
    pause_measured: bool
    mtbf_s: float
    """Mean time between failures of the whole system."""
    step_s: float | None
    bound: str
    """The bound that replaced the formula's interval; empty if none did."""

    def line(self) -> str:
        """Describe the interval for people."""
        steps = "" if self.step_s is None else f", about {max(1, round(self.seconds / self.step_s))} steps"
        how_often = f"{self.seconds / 60:.1f} min" if self.seconds >= 60 else f"{self.seconds:.1f} s"
        headline = f"checkpoints every {how_often}{steps}"
        if self.pause_s is None:
            return f"{headline} (--save-minutes)"
        origin = "measured" if self.pause_measured else "estimated"
        cost = f"a save pauses training for {self.pause_s:.2f} s ({origin})"
        failures = f"a failure is expected every {self.mtbf_s / 3600:.1f} h"
        return "; ".join(filter(None, (f"{headline}: {cost}", failures, self.bound)))


def checkpoint_bytes(model: DecoderSizes) -> int:
    return CHECKPOINT_BYTES_PER_PARAMETER * num_parameters(model)


def estimated_pause_s(model: DecoderSizes, system: System) -> float:
    """Estimate the pause of a save before one was measured: each device copies its part."""
    return checkpoint_bytes(model) * system.replicas / system.num_devices / COPY_BYTES_PER_S


def save_interval(
    benchmark: Benchmark,
    system: System,
    save_minutes: float | None,
    *,
    pause_s: float | None,
    write_s: float | None,
    step_s: float | None,
) -> SaveInterval:
    """Compute the interval from the medians measured so far; None: not measured yet."""
    mtbf_s = 3600 * system.device_mtbf_hours / system.num_devices
    if save_minutes is not None:
        return SaveInterval(60 * save_minutes, None, False, mtbf_s, step_s, "")
    cost_s = estimated_pause_s(benchmark.model, system) if pause_s is None else pause_s
    seconds, bound = math.sqrt(2 * cost_s * mtbf_s), ""
    if write_s is not None and seconds < write_s / WRITING_SHARE:
        seconds, bound = write_s / WRITING_SHARE, f"the background takes {write_s:.1f} s to write one"
    expected = benchmark.expected_steps
    if step_s is not None and seconds > MOST_OF_A_RUN * expected * step_s:
        seconds = MOST_OF_A_RUN * expected * step_s
        bound = f"at most {MOST_OF_A_RUN:.0%} of the {expected} steps that a run takes"
    return SaveInterval(seconds, cost_s, pause_s is not None, mtbf_s, step_s, bound)


class SavePolicy:
    """Decide on rank 0 when to save, from the durations of saves and steps so far."""

    def __init__(
        self, benchmark: Benchmark, system: System, options: SaveOptions, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._benchmark, self._system, self._save_minutes, self._clock = benchmark, system, options.save_minutes, clock
        self._by_time = options.saves and options.save_interval is None
        self._newest_begun_s = clock()
        """Time when the newest checkpoint, or else the run, was begun."""
        self._steps: deque[float] = deque(maxlen=KEPT_STEPS)
        self._pauses: deque[float] = deque(maxlen=KEPT_SAVES)
        self._writes: deque[float] = deque(maxlen=KEPT_SAVES)
        self._is_first_step = True

    def interval(self) -> SaveInterval | None:
        """Return the interval; None if steps are counted instead, nothing is saved, or too little is known yet."""
        if not self._by_time or len(self._steps) < MEASURED_STEPS:
            return None
        return save_interval(
            self._benchmark,
            self._system,
            self._save_minutes,
            pause_s=_median(self._pauses),
            write_s=_median(self._writes),
            step_s=_median(self._steps),
        )

    def is_due(self) -> bool:
        interval = self.interval()
        return interval is not None and self._clock() - self._newest_begun_s >= interval.seconds

    def note_step(self, seconds: float) -> None:
        if not self._is_first_step:
            self._steps.append(seconds)
        self._is_first_step = False

    def note_save(self, pause_s: float) -> None:
        """Count a checkpoint that was begun; training paused for ``pause_s``, including the audit before it."""
        self._newest_begun_s = self._clock() - pause_s
        self._pauses.append(pause_s)

    def note_write(self, seconds: float) -> None:
        self._writes.append(seconds)

    @property
    def last_write_s(self) -> float | None:
        return self._writes[-1] if self._writes else None


def _median(values: deque[float]) -> float | None:
    return median(values) if values else None
