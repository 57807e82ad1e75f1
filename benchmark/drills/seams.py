"""Functions of the run that a fault may strike in: wrapped in a drill's process, which the run knows nothing of."""

import functools
import importlib
from collections.abc import Callable
from typing import Any

WRITER, FOLDER = (f"benchmark.training.checkpoints.checkpoint_{name}" for name in ("writer", "folder"))
SEAMS: dict[str, tuple[str, str]] = {
    "step": ("benchmark.training.loop", "train_step"),
    "passes": ("benchmark.training.step", "accumulate"),
    "gradients": ("benchmark.training.engine.adam", "Adam.gradient_square_sum"),
    "block": ("model.passes.block_pass", "BlockPass._whole_forward"),
    "evaluation batch": ("benchmark.training.step", "read_micro_batch"),
    "copy": (WRITER, "Checkpointer._copy"),
    "shards": ("torch.distributed.checkpoint", "FileSystemWriter.write_data"),
    "rename": ("pathlib", "Path.rename"),
    "renamed": (FOLDER, "sync_to_disk"),
    "retire": (WRITER, "retire_old_checkpoints"),
    "event": ("benchmark.events.line_files", "JsonLines.write"),
    "log line": ("benchmark.events.mlperf_log", "MlperfLog.write"),
}
"""Module and name by the name that faults use ("call:NAME"). copy: of the state, for a checkpoint. shards: writing a
process's files. rename: all files are there, the folder has not got its name. renamed: it has. retire: of checkpoints
that are too old."""

Before = Callable[[tuple[Any, ...]], tuple[Any, ...]]
"""Given a call's arguments, those to call with."""
After = Callable[[float], None]
"""Given the seconds that a call took."""


def wrap(seam: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace the function of ``seam`` by ``around(it)``, in this process."""
    module, name = SEAMS[seam]
    owner: Any = importlib.import_module(module)
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    original = getattr(owner, last)
    setattr(owner, last, functools.wraps(original)(around(original)))
