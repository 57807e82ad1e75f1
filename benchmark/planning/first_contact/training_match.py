"""Train small models on a CPU and on the device from the same weights, then save and load it. Losses and norms must
agree, and loading must restore every bit."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from benchmark.config.number_formats import Precision
from benchmark.config.run_sections import SaveOptions
from benchmark.planning.slice.made_up_state import made_up_batches, made_up_state
from benchmark.planning.slice.slice_config import SliceOptions, slice_config
from benchmark.run_record.file_names import checkpoint_path
from benchmark.training.checkpoints.checkpoint_reader import load_checkpoint
from benchmark.training.checkpoints.checkpoint_writer import Checkpointer
from benchmark.training.engine.adam import local
from benchmark.training.engine.distributed import joined_world
from benchmark.training.engine.rank_device import require_format
from benchmark.training.engine.rank_environment import Environment
from benchmark.training.engine.train_state import TrainState
from benchmark.training.step import train_step
from foundation.errors import CheckFailed

STEPS = 4
MODELS = ("rehearsal", "rehearsal_llama")
"""Benchmarks whose models train: one of each architecture."""
LAYERS = 2
SAVE_LIMIT_S = 60.0
TOLERANCES: dict[Precision, tuple[float, float]] = {"fp32": (2e-4, 2e-3), "bf16": (5e-3, 5e-2), "fp8": (1e-2, 1e-1)}
"""Largest relative difference of losses and of norms. In BF16 a CPU rounds products before it sums them; FP8 makes of a
last bit of BF16 a step sixteen times as large."""


@dataclass(frozen=True)
class TrainedSteps:
    """Losses and gradient norms of all steps, and the weights and moments from before the steps."""

    losses: list[float]
    norms: list[float]
    start: dict[str, Tensor]


def trained_as_on_a_cpu(precision: Precision, device: torch.device) -> str:
    """Train the rehearsals' models with fewer layers on the CPU, then on the device. Raises CheckFailed, and
    InputError for a device without that format."""
    require_format(precision, device)
    kind: Literal["cuda", "cpu"] = "cuda" if device.type == "cuda" else "cpu"
    differences = []
    for name in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            on_cpu = _train(name, "cpu", torch.device("cpu"), precision, Path(folder), None)
            on_device = _train(name, kind, device, precision, Path(folder), on_cpu.start)
        differences.append(f"{name}: {compared(on_device, on_cpu, precision)}")
    return f"{'; '.join(differences)}; saved and loaded to the bit"


def compared(trained: TrainedSteps, expected: TrainedSteps, precision: Precision) -> str:
    """Return the difference of the steps from the CPU's; raise CheckFailed if it is too large, or not a number."""
    differences = []
    for name, limit in zip(("losses", "norms"), TOLERANCES[precision], strict=True):
        theirs = getattr(expected, name)
        error = float(np.max(np.abs(np.subtract(getattr(trained, name), theirs) / theirs)))  # NaN where any is
        if not error <= limit:
            limits = f"expected at most {limit:.2g}"
            raise CheckFailed(f"{name} of {STEPS} steps are off by {error:.2g} of the CPU's; {limits}")
        differences.append(f"{name} within {error:.1g}")
    return f"{STEPS} steps, {', '.join(differences)} of the CPU's"


def _train(
    benchmark: str,
    kind: Literal["cuda", "cpu"],
    device: torch.device,
    precision: Precision,
    folder: Path,
    start: dict[str, Tensor] | None,
) -> TrainedSteps:
    """Train from ``start``, or from made-up weights without it; save the result and load it."""
    options = SliceOptions(
        benchmark, device=kind, precision=precision, micro_batches=4, micro_batch_size=2, seq_length=64
    )
    config = slice_config(options, LAYERS, "")
    with joined_world(config.system, Environment(0, 1, device.index or 0, visible_gpus=1)) as world:
        state = made_up_state(config.benchmark, config.system, precision, world)
        tensors = _local_tensors(state)
        for name, value in (start or {}).items():
            tensors[name].copy_(value)
        begun = {name: tensor.cpu().clone() for name, tensor in tensors.items()}
        batches, results = made_up_batches(config.benchmark, config.system, world), []
        for _ in range(STEPS):
            results.append(train_step(state, batches))
            state.progress.steps += 1
        if start:
            _save_and_load(state, precision, folder)
        return TrainedSteps([result.loss for result in results], [result.grad_norm for result in results], begun)


def _save_and_load(state: TrainState, precision: Precision, run_dir: Path) -> None:
    """Raise CheckFailed if a saved and loaded checkpoint differs from the state in any bit."""
    writer = Checkpointer(state, run_dir, SaveOptions())
    writer.save()
    saved = writer.wait(SAVE_LIMIT_S)
    if saved is None or saved.failure is not None:
        raise CheckFailed(f"a checkpoint could not be written: {saved.failure if saved else 'it takes too long'}")
    loaded = made_up_state(state.benchmark, state.system, precision, state.world)
    loaded.progress.steps = state.progress.steps
    for tensor in _local_tensors(loaded).values():
        tensor.fill_(torch.nan)
    load_checkpoint(loaded, checkpoint_path(run_dir, state.progress.steps))
    theirs = _local_tensors(loaded)
    wrong = [name for name, tensor in _local_tensors(state).items() if not torch.equal(tensor, theirs[name])]
    if wrong:
        raise CheckFailed(f"{len(wrong)} tensors differ from the saved ones, such as {wrong[0]}")


def _local_tensors(state: TrainState) -> dict[str, Tensor]:
    """Return weights and moments of this process, by name."""
    return {name: local(tensor) for name, tensor in state.tensors().items()}
