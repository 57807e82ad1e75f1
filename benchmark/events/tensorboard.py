"""Write scalars for TensorBoard in ``RUN_DIR/tensorboard``; the step of each is tokens trained since the checkpoint."""

from pathlib import Path
from typing import Any

from benchmark.events.event import Event
from stage.optional_packages import import_optional

SCALARS = {
    "step": {
        "loss": "train/loss",
        "grad_norm": "train/grad_norm",
        "learning_rate": "train/learning_rate",
        "step_s": "speed/step_s",
        "tokens_per_s": "speed/tokens_per_s",
        "tflops_per_device": "speed/tflops_per_device",
        "mfu": "speed/mfu",
    },
    "evaluation": {"log_perplexity": "validation/log_perplexity", "seconds": "validation/seconds"},
}
"""Names of the scalars, by event and field."""


class TensorBoard:
    """A sink of TensorBoard's files. Raises InputError if tensorboardX is not installed."""

    name = "TensorBoard"

    def __init__(self, folder: Path) -> None:
        writer = import_optional("tensorboardX", "tensorboardX", "--tensorboard")
        self._writer: Any = writer.SummaryWriter(str(folder))

    def write(self, event: Event) -> None:
        tokens = event.metadata.get("trained_tokens")
        for field, tag in SCALARS.get(event.key, {}).items():
            if event.metadata.get(field) is not None:
                self._writer.add_scalar(tag, event.metadata[field], tokens, walltime=event.time_ms / 1000)
        if event.key == "evaluation":
            self._writer.flush()

    def close(self) -> None:
        self._writer.close()
