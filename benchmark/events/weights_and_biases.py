"""Send figures of steps and evaluations, and lines for people, to Weights & Biases (--wandb).

Its files lie in ``RUN_DIR/wandb``. W&B's own library resumes the curve after a restart, by the id in
``RUN_DIR/wandb/id``. It keeps unsent data in files of its own, which ``wandb sync`` sends later. It is called in this
sink's thread alone (background_sink.py), so that waiting for its network holds up nothing.
"""

import secrets
from pathlib import Path
from typing import Any, Literal

from benchmark.events.event import Event
from benchmark.events.tensorboard import SCALARS
from stage.json_files import read_json
from stage.optional_packages import import_optional
from stage.outputs.publish import write_text

INIT_S = 120.0
"""Seconds that W&B may try to reach its server before the sink fails and is tried again."""
AXES = {"*": "trained_tokens", "validation/*": "evaluated_tokens"}
"""The axis that each metric is drawn over."""
FIGURES = {
    "step": {
        **SCALARS["step"],
        "memory_gib": "speed/memory_gib",
        "skipped": "train/skipped",
        "trained_tokens": "trained_tokens",
    },
    "evaluation": {**SCALARS["evaluation"], "trained_tokens": "evaluated_tokens"},
    "checkpoint": {"seconds": "checkpoint/pause_s"},
    "checkpoint_written": {"seconds": "checkpoint/write_s"},
    "restart": {"value": "restarts"},
    "eta": {"seconds": "eta/target_s", "seconds_low": "eta/target_low_s", "seconds_high": "eta/target_high_s"},
}
"""Names of the metrics, by event and field."""
TOLD = ("message", "incident", "after_checkpoint")
"""Events whose text becomes ``last_message`` in the summary."""


class WeightsAndBiases:
    """A sink that sends to W&B. Raises InputError if wandb is not installed."""

    name = "W&B"

    def __init__(self, run_dir: Path, mode: Literal["online", "offline"]) -> None:
        self._wandb = import_optional("wandb", "wandb", "--wandb")
        self._run_dir, self._mode = run_dir.absolute(), mode
        self._run: Any = None
        self._row = 0
        """W&B's own count of rows, which only grows: the number of a step."""

    def write(self, event: Event) -> None:
        """Send an event. Raises ConnectionError while the curve cannot be opened; training goes on, and the sink tries
        again."""
        if self._run is None:
            try:
                self._run = self._opened()
            except Exception as error:  # W&B has its own for a key, a network or a server that is missing
                raise ConnectionError(f"{type(error).__name__}: {error}") from error
        fields = {"value": event.value, **event.metadata}
        if event.key == "step":
            self._row = fields["iteration"]
        named = FIGURES.get(event.key, {}).items()
        figures = {tag: fields[name] for name, tag in named if fields.get(name) is not None}
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
        known = self._run_dir / "wandb" / "id"
        if not known.exists():
            known.parent.mkdir(exist_ok=True)
            write_text(known, secrets.token_hex(8))
        config = read_json(self._run_dir / "config.json", dict)
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
            id=known.read_text(),
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
