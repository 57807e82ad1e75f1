"""The files by which a run describes its own checkpoint, ``RUN_DIR/checkpoints/step_XXXXXXXX``.

RUN_DIR/config.json                                  the model, and Adam's step as the run began
RUN_DIR/checkpoints/step_XXXXXXXX/progress.json      the steps done since
"""

from dataclasses import dataclass
from pathlib import Path

from stage.errors import InputError
from stage.json_files import read_json


@dataclass(frozen=True)
class ModelConfig:
    num_attention_heads: int


@dataclass(frozen=True)
class BenchmarkConfig:
    model: ModelConfig
    start_iterations: int
    """Adam's step in the initial checkpoint."""


@dataclass(frozen=True)
class RunSizes:
    benchmark: BenchmarkConfig


@dataclass(frozen=True)
class RunProgress:
    start_samples: int
    global_batch_size: int
    steps: int
    skipped_steps: int = 0
    """Steps that Adam did not make."""


def run_config(folder: Path) -> RunSizes | None:
    """Return the configuration of the run whose checkpoint ``folder`` is; None where no run's folder is around it.

    Raises InputError where it is damaged.
    """
    path = folder.absolute().parent.parent / "config.json"
    if folder.absolute().parent.name != "checkpoints" or not path.is_file():
        return None
    return read_json(path, RunSizes, mend=f"it is not a run's configuration; copy {folder} elsewhere")


def run_progress(folder: Path) -> RunProgress | None:
    """Return the progress of the run at its checkpoint ``folder``; None where that is none of a run's.

    Raises InputError where it is damaged.
    """
    try:
        progress = read_json(folder / "progress.json", RunProgress, mend="use another checkpoint")
    except FileNotFoundError:
        return None
    if progress.global_batch_size < 1:
        raise InputError(f"{folder / 'progress.json'}: a batch of {progress.global_batch_size}; use another checkpoint")
    return progress


def run_iteration(folder: Path) -> int | None:
    """Return the steps since step 0 in the run's batch size, None where ``folder`` is no run's checkpoint."""
    progress = run_progress(folder)
    return None if progress is None else progress.start_samples // progress.global_batch_size + progress.steps


def run_adam_step(folder: Path) -> int | None:
    """Return Adam's step, None where the run's files do not tell it."""
    progress, config = run_progress(folder), run_config(folder)
    if progress is None or config is None:
        return None
    return config.benchmark.start_iterations + progress.steps - progress.skipped_steps
