"""Write the state of a run as gauges into a file that Prometheus' node exporter collects (``--collector.textfile``).

A gauge that is not known yet is not in the file. After a restart, known values from before are there from the
beginning.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, write_to_textfile
from prometheus_client import Gauge as Exported

from benchmark.events.event import Event

EVERY_S = 5.0
"""Least seconds between two writes because of steps; other events are written at once."""


@dataclass(frozen=True)
class Gauge:
    """A figure, and the event that it comes from."""

    name: str
    help: str
    key: str
    """Key of the event."""
    field: str
    """Field of the event; "value" and "time_s" are the event's own."""
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
ACTIVE = Gauge("gpt3_run_active", "1 while the process that writes this runs, 0 once it has ended in order.", "", "")


class PrometheusTextfile:
    """Replace ``path``, a file ``*.prom`` in the collector's folder, as a whole at each write."""

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
        self._labels = {"run": run, "system": system}
        self._registry = CollectorRegistry()
        self._exported: dict[str, Exported] = {}
        self._written_at: float | None = None
        self._set(ACTIVE, 1.0)
        for gauge in GAUGES:
            self._set(gauge, known.get(gauge.name))

    def write(self, event: Event) -> None:
        """Update the gauges of an event. Raises OSError, for example if the folder is missing."""
        gauges = [gauge for gauge in GAUGES if gauge.key == event.key]
        own: dict[str, Any] = {"value": event.value, "time_s": event.time_ms / 1000}
        for gauge in gauges:
            value = own.get(gauge.field, event.metadata.get(gauge.field))
            self._set(gauge, value * gauge.factor if isinstance(value, int | float) else None)
        late = self._written_at is None or self._clock() - self._written_at >= EVERY_S
        if gauges and (late or event.key != "step"):
            self._publish()

    def close(self) -> None:
        self._set(ACTIVE, 0.0)
        self._publish()

    def _set(self, gauge: Gauge, value: float | None) -> None:
        """Set a gauge; None leaves it as it is."""
        if value is None:
            return
        if gauge.name not in self._exported:
            exported = Exported(gauge.name, gauge.help, list(self._labels), registry=self._registry)
            self._exported[gauge.name] = exported
        self._exported[gauge.name].labels(**self._labels).set(value)

    def _publish(self) -> None:
        write_to_textfile(str(self._path), self._registry)
        self._path.chmod(0o644)  # the exporter is another user
        self._written_at = self._clock()
