"""The state of a run as gauges in a file that Prometheus' node exporter collects (``--collector.textfile``).

The text format is that of https://prometheus.io/docs/instrumenting/exposition_formats. A gauge that is not known yet is
not in the file. What a restart knows of the time before it is given at the beginning.
"""

import contextlib
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.events.event import Event

EVERY_S = 5.0
"""At most so often because of steps; whatever else happens is written at once."""


@dataclass(frozen=True)
class Gauge:
    """A figure, and where it comes from."""

    name: str
    help: str
    key: str
    """Of the event."""
    field: str
    """Of the event; "value" and "time_s" are its own."""
    factor: float = 1.0


GAUGES = (
    Gauge("gpt3_last_step_timestamp_seconds", "When the last step ended, since the epoch.", "step", "time_s"),
    Gauge("gpt3_iteration", "Optimizer steps since step 0 of the initial checkpoint's training.", "step", "iteration"),
    Gauge("gpt3_trained_tokens", "Tokens trained since the initial checkpoint.", "step", "trained_tokens"),
    Gauge("gpt3_consumed_samples", "Samples consumed since step 0.", "step", "consumed_samples"),
    Gauge("gpt3_step_seconds", "Time of the last step.", "step", "step_s"),
    Gauge("gpt3_tokens_per_second", "Tokens of the last step over its time.", "step", "tokens_per_s"),
    Gauge("gpt3_device_flops_per_second", "Model FLOP/s of each device.", "step", "tflops_per_device", 1e12),
    Gauge("gpt3_mfu_ratio", "Model FLOP/s over the device's dense BF16 peak.", "step", "mfu"),
    Gauge("gpt3_loss_nats", "Training loss, per scored token.", "step", "loss"),
    Gauge("gpt3_gradient_norm", "L2 norm of the whole gradient before clipping.", "step", "grad_norm"),
    Gauge("gpt3_learning_rate", "Of the last step.", "step", "learning_rate"),
    Gauge("gpt3_step_skipped", "1 if the last step's gradients were not finite.", "step", "skipped"),
    Gauge("gpt3_device_memory_peak_bytes", "Most memory rank 0 has held.", "step", "memory_gib", 2.0**30),
    Gauge("gpt3_evaluation_log_perplexity_nats", "Of the validation set, per scored token.", "evaluation",
          "log_perplexity"),
    Gauge("gpt3_evaluation_trained_tokens", "Tokens trained before the last evaluation.", "evaluation",
          "trained_tokens"),
    Gauge("gpt3_evaluation_seconds", "Time of the last evaluation.", "evaluation", "seconds"),
    Gauge("gpt3_target_log_perplexity_nats", "At or below which the run ends.", "evaluation", "target"),
    Gauge("gpt3_checkpoint_pause_seconds", "How long training paused for the last checkpoint.", "checkpoint",
          "seconds"),
    Gauge("gpt3_checkpoint_write_seconds", "How long the last checkpoint took to be written.", "checkpoint_written",
          "seconds"),
    Gauge("gpt3_checkpoint_steps", "Steps of the last whole checkpoint.", "checkpoint_written", "steps"),
    Gauge("gpt3_checkpoint_timestamp_seconds", "When it was whole, since the epoch.", "checkpoint_written", "time_s"),
    Gauge("gpt3_restarts", "How often the run went on from a checkpoint of its own.", "restart", "value"),
    Gauge("gpt3_target_seconds", "Expected time until the target.", "eta", "seconds"),
    Gauge("gpt3_target_low_seconds", "Lower end of its interval.", "eta", "seconds_low"),
    Gauge("gpt3_target_high_seconds", "Upper end of its interval.", "eta", "seconds_high"),
    Gauge("gpt3_target_trained_tokens", "Tokens after which the target is expected.", "eta", "target_tokens"),
)  # fmt: skip
ACTIVE = ("gpt3_run_active", "1 while the process that writes this runs, 0 once it has ended in order.")


class PrometheusTextfile:
    """``path``: a file ``*.prom`` in the collector's folder; written whole, beside it, and renamed."""

    name = "Prometheus textfile"

    def __init__(
        self,
        path: Path,
        *,
        run: str,
        system: str,
        known: Mapping[str, float | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``run`` and ``system`` are the labels; ``known``: gauges that are known before the first event."""
        self._path, self._clock = path, clock
        self._labels = f'{{run="{_escaped(run)}",system="{_escaped(system)}"}}'
        self._values: dict[str, float] = {name: value for name, value in known.items() if value is not None}
        self._written_at: float | None = None
        self._active = 1

    def write(self, event: Event) -> None:
        """Raises OSError, as where the folder is missing."""
        found = {gauge.name: _number(event, gauge) for gauge in GAUGES if gauge.key == event.key}
        if not found:
            return
        self._values.update({name: value for name, value in found.items() if value is not None})
        late = self._written_at is None or self._clock() - self._written_at >= EVERY_S
        if late or event.key != "step":
            self._publish()

    def close(self) -> None:
        self._active = 0
        self._publish()

    def _publish(self) -> None:
        # not one of *.prom, which the collector would read; and not synced: after a crash the next one replaces it
        partial = self._path.with_name(f"{self._path.name}.partial")
        try:
            partial.write_text(self._text(), encoding="utf-8")
            partial.chmod(0o644)  # the exporter is another user
            os.replace(partial, self._path)
        finally:
            with contextlib.suppress(OSError):
                partial.unlink()
        self._written_at = self._clock()

    def _text(self) -> str:
        lines = []
        for name, text, value in [
            (*ACTIVE, float(self._active)),
            *((gauge.name, gauge.help, self._values.get(gauge.name)) for gauge in GAUGES),
        ]:
            if value is not None:
                lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge", f"{name}{self._labels} {_spelled(value)}"]
        return "\n".join(lines) + "\n"


def _number(event: Event, gauge: Gauge) -> float | None:
    own: dict[str, Any] = {"value": event.value, "time_s": event.time_ms / 1000}
    value = own.get(gauge.field, event.metadata.get(gauge.field))
    return float(value) * gauge.factor if isinstance(value, int | float) else None


def _spelled(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
