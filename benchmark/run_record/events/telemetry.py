"""Sinks that send a run's figures to other programs: TensorBoard, Weights & Biases, Prometheus.

One table maps the fields of events to their names there.
"""

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from prometheus_client import CollectorRegistry, write_to_textfile
from prometheus_client import Gauge as ExportedGauge

from benchmark.run_record.events.event import Event
from benchmark.run_record.file_names import CONFIG_FILE, WANDB_FOLDER
from foundation.disk_answers import is_there
from foundation.file_formats.json_files import read_json
from foundation.optional_packages import import_optional
from foundation.outputs.publish import write_text


class Sent(NamedTuple):
    """A figure of an event, and its names elsewhere; an empty name leaves it out there."""

    key: str
    """Key of the event."""
    field: str
    """Field of the event; "value" and "time_s" are the event's own."""
    chart: str
    """Name in TensorBoard and W&B."""
    gauge: str
    """Name in Prometheus, without "gpt3_" at its beginning."""
    help: str = ""
    factor: float = 1.0
    """Factor from the field to the gauge."""


FIGURES = (
    Sent("step", "time_s", "", "last_step_timestamp_seconds", "When the last step ended, since the epoch."),
    Sent("step", "iteration", "", "iteration", "Optimizer steps since step 0 of the initial checkpoint's training."),
    Sent("step", "trained_tokens", "trained_tokens", "trained_tokens", "Tokens since the initial checkpoint."),
    Sent("step", "consumed_samples", "", "consumed_samples", "Samples consumed since step 0."),
    Sent("step", "step_s", "speed/step_s", "step_seconds", "Time of the last step."),
    Sent("step", "tokens_per_s", "speed/tokens_per_s", "tokens_per_second", "Tokens of the last step over its time."),
    Sent("step", "tflops_per_device", "speed/tflops_per_device", "device_flops_per_second",
         "Model FLOP/s of each device.", 1e12),
    Sent("step", "mfu", "speed/mfu", "mfu_ratio", "Model FLOP/s over the device's dense peak in the run's format."),
    Sent("step", "loss", "train/loss", "loss_nats", "Training loss, per scored token."),
    Sent("step", "grad_norm", "train/grad_norm", "gradient_norm", "L2 norm of the whole gradient before clipping."),
    Sent("step", "learning_rate", "train/learning_rate", "learning_rate", "Of the last step."),
    Sent("step", "skipped", "train/skipped", "step_skipped", "1 if the last step's gradients were not finite."),
    Sent("step", "memory_gib", "speed/memory_gib", "device_memory_peak_bytes", "Most memory rank 0 has held.",
         2.0**30),
    Sent("evaluation", "log_perplexity", "validation/log_perplexity", "evaluation_log_perplexity_nats",
         "Of the validation set, per scored token."),
    Sent("evaluation", "trained_tokens", "evaluated_tokens", "evaluation_trained_tokens",
         "Tokens trained before the last evaluation."),
    Sent("evaluation", "seconds", "validation/seconds", "evaluation_seconds", "Time of the last evaluation."),
    Sent("evaluation", "target", "", "target_log_perplexity_nats", "At or below which the run ends."),
    Sent("checkpoint", "seconds", "checkpoint/pause_s", "checkpoint_pause_seconds",
         "How long training paused for the last checkpoint."),
    Sent("checkpoint_written", "seconds", "checkpoint/write_s", "checkpoint_write_seconds",
         "How long the last checkpoint took to be written."),
    Sent("checkpoint_written", "steps", "", "checkpoint_steps", "Steps of the last whole checkpoint."),
    Sent("checkpoint_written", "time_s", "", "checkpoint_timestamp_seconds", "When it was whole, since the epoch."),
    Sent("restart", "value", "restarts", "restarts", "How often the run went on from a checkpoint of its own."),
    Sent("eta", "seconds", "eta/target_s", "target_seconds", "Expected time until the target."),
    Sent("eta", "seconds_low", "eta/target_low_s", "target_low_seconds", "Lower end of its interval."),
    Sent("eta", "seconds_high", "eta/target_high_s", "target_high_seconds", "Upper end of its interval."),
    Sent("eta", "target_tokens", "", "target_trained_tokens", "Tokens after which the target is expected."),
)  # fmt: skip
TOLD = ("message", "incident", "after_checkpoint")
"""Events whose text becomes ``last_message`` in the summary of W&B."""
AXES = {"*": "trained_tokens", "validation/*": "evaluated_tokens"}
"""The axis that W&B draws each chart over."""
INIT_S = 120.0
"""Seconds that W&B may try to reach its server before the sink fails and is tried again."""
PROMETHEUS_S = 5.0
"""Least seconds between two writes for Prometheus because of steps; other events are written at once."""


def figures_of(event: Event) -> dict[Sent, Any]:
    """Return the values of an event's figures, as far as they are known."""
    fields = {"value": event.value, "time_s": event.time_ms / 1000, **event.metadata}
    values = {figure: fields.get(figure.field) for figure in FIGURES if figure.key == event.key}
    return {figure: value for figure, value in values.items() if value is not None}


class TensorBoard:
    """A sink of TensorBoard's files; the step of each scalar is tokens trained since the checkpoint.

    Raises InputError if tensorboardX is not installed.
    """

    name = "TensorBoard"

    def __init__(self, folder: Path) -> None:
        writer = import_optional("tensorboardX", "tensorboardX", "--tensorboard")
        self._writer: Any = writer.SummaryWriter(str(folder))

    def write(self, event: Event) -> None:
        if event.key not in ("step", "evaluation"):
            return
        for figure, value in figures_of(event).items():
            if "/" in figure.chart:
                tokens, walltime = event.metadata.get("trained_tokens"), event.time_ms / 1000
                self._writer.add_scalar(figure.chart, value, tokens, walltime=walltime)
        if event.key == "evaluation":
            self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A sink that sends to W&B, with its files in ``RUN_DIR/wandb``. Raises InputError if wandb is not installed.

    W&B's own library resumes the curve after a restart, by the id in ``RUN_DIR/wandb/id``, and keeps unsent data in
    files that ``wandb sync`` sends later.
    """

    name = "W&B"

    def __init__(self, run_dir: Path, mode: Literal["online", "offline"]) -> None:
        self._wandb = import_optional("wandb", "wandb", "--wandb")
        self._run_dir, self._mode = run_dir.absolute(), mode
        self._run: Any = None
        self._row = 0
        """W&B's own count of rows, which only grows: the number of a step."""

    def write(self, event: Event) -> None:
        """Send an event. Raises ConnectionError while the curve cannot be opened."""
        if self._run is None:
            try:
                self._run = self._opened()
            except Exception as error:  # W&B has its own for a key, a network or a server that is missing
                raise ConnectionError(f"{type(error).__name__}: {error}") from error
        if event.key == "step":
            self._row = event.metadata["iteration"]
        figures = {figure.chart: value for figure, value in figures_of(event).items() if figure.chart}
        if figures:
            # Of a step that is done again after a restart W&B keeps the first row, and says so.
            self._run.log({**figures, "_timestamp": event.time_ms / 1000}, step=self._row)
        elif event.key in TOLD:
            self._run.summary["last_message"] = f"{event.key}: {event.value}"

    def close(self) -> None:
        """Send the remaining data; the caller waits no longer than background_sink.py says."""
        if self._run is not None:
            self._run.finish()

    def _opened(self) -> Any:
        """Begin the curve, or go on with the curve of the attempt before."""
        id_file = self._run_dir / WANDB_FOLDER / "id"
        if not is_there(id_file):
            id_file.parent.mkdir(exist_ok=True)
            write_text(id_file, secrets.token_hex(8))
        config = read_json(self._run_dir / CONFIG_FILE, dict)
        ours = self._wandb.setup().settings  # what environment variables and W&B's own files say
        settings = self._wandb.Settings(
            console="off",
            disable_git=True,
            save_code=False,
            silent=True,
            init_timeout=INIT_S,
            x_disable_stats=True,  # it would ask the devices for their state beside training
        )
        run = self._wandb.init(
            id=id_file.read_text(),
            resume="allow",
            mode=self._mode,
            dir=str(self._run_dir),
            project=ours.project or config["benchmark"]["name"],
            name=ours.run_name or self._run_dir.name,
            config=config,
            allow_val_change=True,
            settings=settings,
        )
        for metric, axis in AXES.items():
            run.define_metric(metric, step_metric=axis)
        return run


class PrometheusTextfile:
    """A sink of gauges in a file ``*.prom``, replaced as a whole, that Prometheus' node exporter collects.

    A gauge is not in the file before its first event.
    """

    name = "Prometheus textfile"

    def __init__(self, path: Path, *, run: str, system: str, clock: Callable[[], float] = time.monotonic) -> None:
        """``run`` and ``system`` are the labels."""
        self._path, self._clock, self._labels = path, clock, {"run": run, "system": system}
        self._registry = CollectorRegistry()
        self._gauges: dict[str, ExportedGauge] = {}
        self._written_at: float | None = None

    def write(self, event: Event) -> None:
        """Update the gauges of an event. Raises OSError, for example if the folder is missing."""
        self._set_active(1)
        values = figures_of(event)
        for figure, value in values.items():
            self._set(figure.gauge, figure.help, value * figure.factor)
        late = self._written_at is None or self._clock() - self._written_at >= PROMETHEUS_S
        if values and (late or event.key != "step"):
            self._publish()

    def close(self) -> None:
        self._set_active(0)
        self._publish()

    def _set_active(self, value: int) -> None:
        self._set("run_active", "1 while the process that writes this runs, 0 once it has ended in order.", value)

    def _set(self, name: str, meaning: str, value: float) -> None:
        if name not in self._gauges:
            self._gauges[name] = ExportedGauge(f"gpt3_{name}", meaning, list(self._labels), registry=self._registry)
        self._gauges[name].labels(**self._labels).set(value)

    def _publish(self) -> None:
        write_to_textfile(str(self._path), self._registry)
        self._path.chmod(0o644)  # the exporter is another user
        self._written_at = self._clock()
