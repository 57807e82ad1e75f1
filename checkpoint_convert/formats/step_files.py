"""Read and write the files that give a checkpoint's training step, and which weights of it are the FP32 ones.

A checkpoint in the Megatron zarr layout has Adam's step in ``common.pt`` (docs/facts/reference.md f.3). A run's own has
it in two files:

    RUN_DIR/config.json                                  the model, and Adam's step as the run began
    RUN_DIR/checkpoints/step_XXXXXXXX/progress.json      the steps done since

PAXML has counters, zarr arrays beside the 48 of weights and moments (docs/facts/reference.md f.2):

    step                                  uint32, no axes: the training step
    opt_states_0.no_prefix_I.count        int32, no axes, for each of the optimizer's transformations
    opt_states_0.p#96#i-1_I.count         int32, one per layer: the same for the stacked arrays

The counter of transformation 2, which has the moments, is Adam's step; Megatron's layout has no place for the others.
"""

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from checkpoint_convert.formats.array_table import MASTER_WEIGHTS, REPEATS, WEIGHTS
from checkpoint_convert.formats.boxes import whole_box
from checkpoint_convert.formats.stored_array import StoredArray
from checkpoint_convert.formats.zarr_arrays import METADATA_FILE, metadata_text
from checksums.common_file import COMMON, METADATA, PARAM_GROUP, common_content, plain_common
from foundation.disk_answers import entries_in, file_is_there
from foundation.errors import InputError, first_line
from foundation.file_formats.json_files import read_json
from foundation.sizes import require_between

CONTENT = '{"sharded_backend": "zarr"}'
COMMON_FILES = (METADATA, COMMON)
"""Small files of a Megatron zarr checkpoint, which two writers may spell differently."""
BENCHMARK_STEP: int = PARAM_GROUP["step"]
"""Adam's step that the reference's converter writes for every checkpoint."""
LARGEST_STEP = (1 << 31) - 1

CONFIG, CHECKPOINTS, PROGRESS = "config.json", "checkpoints", "progress.json"
"""Names in the folder of a run, as in benchmark/run_record/file_names.py."""

TRANSFORMATIONS = 4
STEP = "step"
KINDS = (r".*_2\.count", r".*\.count", STEP)
"""Patterns of counters in the order of their trust: Adam's moments are the state of transformation 2."""
COUNTER = re.compile(r"step|opt_states_\d+\.(no_prefix|p#\d+#i-1)_\d+\.count", re.ASCII)
MOST_VALUES = 1 << 16
"""Most values of one counter, which has one per layer."""


def common_files(dtype: str, step: int = BENCHMARK_STEP) -> dict[str, bytes]:
    """Return both files by name; ``step`` is Adam's."""
    import torch  # takes a second or two, which a conversion spends beside its own work

    common = io.BytesIO()
    torch.save(common_content({**PARAM_GROUP, "step": step}, bf16=dtype == "bf16"), common)
    return {METADATA: CONTENT.encode(), COMMON: common.getvalue()}


def fp32_weights_prefix(folder: Path) -> str:
    """Return the prefix of the FP32 weights' arrays of a Megatron zarr checkpoint: the master copy of a BF16 one.

    Raises InputError if ``folder`` is no such checkpoint.
    """
    if not file_is_there(folder / METADATA):
        raise InputError(f"{folder}: not a Megatron zarr checkpoint (no metadata.json in it)")
    return MASTER_WEIGHTS if any(entry.name.startswith(MASTER_WEIGHTS) for entry in entries_in(folder)) else WEIGHTS


def adam_step(folder: Path) -> int | None:
    """Return Adam's step in ``common.pt``; None if there is no such file, as in the published BF16 tarball.

    Raises InputError if the file is damaged, or holds more than plain values. Megatron-Core's files have the same form.
    """
    groups = _parameter_groups(folder)
    if groups is None:
        return None
    step = groups[0].get("step")
    if type(step) is not int:
        raise InputError(f"{folder / COMMON}: not a checkpoint's common.pt (the step is of type {type(step).__name__})")
    require_between(step, 0, LARGEST_STEP, f"{folder / COMMON}: Adam's step")
    return step


def optimizer_settings(folder: Path) -> dict[str, str] | None:
    """Return the settings of the parameter groups in ``common.pt`` as texts, by names such as "group 0 betas 1".

    Returns None, and raises InputError, as :func:`adam_step` does.
    """
    groups = _parameter_groups(folder)
    if groups is None:
        return None
    settings: dict[str, str] = {}
    for number, group in enumerate(groups):
        for name, value in group.items():
            values = enumerate(value) if isinstance(value, list | tuple) else [("", value)]
            for index, item in values:
                text = repr(item) if type(item) in PLAIN_TYPES else type(item).__name__
                settings[f"group {number} {name} {index}".rstrip()] = text[:LONGEST_SETTING]
                if len(settings) > MOST_SETTINGS:
                    raise InputError(f"{folder / COMMON}: more than {MOST_SETTINGS:,} settings of the optimizer")
    return settings


PLAIN_TYPES = (bool, int, float, str, type(None))
MOST_SETTINGS, LONGEST_SETTING = 10_000, 60


def _parameter_groups(folder: Path) -> list[dict[str, Any]] | None:
    path = folder / COMMON
    if not file_is_there(path):
        return None
    try:
        optimizer = plain_common(path)["optimizer"]
        groups = optimizer.get("optimizer", optimizer)["param_groups"]
        if type(groups) is not list or not groups or not all(type(group) is dict for group in groups):
            raise ValueError("no parameter groups")
        return groups
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not a checkpoint's common.pt ({first_line(error)})") from error


def is_counter(name: str) -> bool:
    """Return whether an array of a PAXML checkpoint is a counter rather than weights or moments."""
    return COUNTER.fullmatch(name) is not None


def paxml_adam_step(where: object, arrays: Mapping[str, StoredArray]) -> int | None:
    """Return Adam's step from the counters among the ``arrays`` of the checkpoint ``where``; None if there is no
    counter.

    Raises InputError if a counter is damaged, counters of one kind differ (Megatron has one for all layers), or there
    are more updates than training steps.
    """
    training_steps = _values(where, STEP, arrays[STEP]) if STEP in arrays else []
    for kind in KINDS:
        names = [name for name in sorted(arrays) if is_counter(name) and re.fullmatch(kind, name)]
        values = {name: set(_values(where, name, arrays[name])) for name in names}
        steps = set().union(*values.values())
        if len(steps) > 1 or (training_steps and steps and max(steps) > training_steps[0]):
            values.setdefault(STEP, set(training_steps))
            text = "; ".join(f"{name} {sorted(counter)[:4]}" for name, counter in values.items())
            raise InputError(f"{where}: its counters of the optimizer's steps differ ({text[:300]}); it is not whole")
        for step in steps:
            require_between(step, 0, LARGEST_STEP, f"{where}/{names[0]}: Adam's step")
            return step
    return None


def _values(where: object, name: str, array: StoredArray) -> list[int]:
    if array.dtype.kind not in "iu" or len(array.shape) > 1 or sum(array.shape) > MOST_VALUES:
        raise InputError(
            f"{where}/{name}: {list(array.shape)} {array.dtype.name}, expected a whole number, or one per layer"
        )
    values: list[int] = array.read(whole_box(array.shape)).reshape(-1).tolist()
    return values


def counter_shapes(layers: int) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return shape and dtype by name of all counters of the benchmark's checkpoint, for a model of ``layers``
    layers."""
    shapes: dict[str, tuple[tuple[int, ...], str]] = {STEP: ((), "uint32")}
    for number in range(TRANSFORMATIONS):
        shapes[f"opt_states_0.no_prefix_{number}.count"] = ((), "int32")
        shapes[f"opt_states_0.p#{REPEATS}#i-1_{number}.count"] = ((layers,), "int32")
    return shapes


def counter_files(step: int, layers: int) -> dict[str, bytes]:
    """Return the files of all counters by name, each with the value ``step``."""
    files = {}
    for name, (shape, dtype) in counter_shapes(layers).items():
        files[f"{name}/{METADATA_FILE}"] = metadata_text(shape, dtype, shape)
        files[f"{name}/0"] = np.full(shape, step, np.dtype(dtype).newbyteorder("<")).tobytes()
    return files


def write_counters(folder: Path, step: int, layers: int) -> None:
    """Write the files of all counters."""
    for name, content in counter_files(step, layers).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)


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
    """Steps that Adam skipped."""


def benchmark_of_run(folder: Path) -> BenchmarkConfig | None:
    """Return the benchmark of the run whose checkpoint ``folder`` is; None if ``folder`` is not in a run's folder.

    Raises InputError if the run's config.json is damaged.
    """
    path = folder.absolute().parent.parent / CONFIG
    if folder.absolute().parent.name != CHECKPOINTS or not file_is_there(path):
        return None
    return read_json(path, RunSizes, mend=f"it is not a run's configuration; copy {folder} elsewhere").benchmark


def run_steps(folder: Path) -> tuple[int | None, int | None]:
    """Return the steps since step 0, at the batch size of the run whose checkpoint ``folder`` is, and Adam's step.

    Either is None if the run's files do not give it. Raises InputError if they are damaged.
    """
    try:
        progress = read_json(folder / PROGRESS, RunProgress, mend="use another checkpoint")
    except FileNotFoundError:
        return None, None
    if progress.global_batch_size < 1:
        raise InputError(f"{folder / 'progress.json'}: a batch of {progress.global_batch_size}; use another checkpoint")
    benchmark = benchmark_of_run(folder)
    adam = None if benchmark is None else benchmark.start_iterations + progress.steps - progress.skipped_steps
    return progress.start_samples // progress.global_batch_size + progress.steps, adam
