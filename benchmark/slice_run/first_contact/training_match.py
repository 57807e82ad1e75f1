"""A small model trained on a CPU and on the device from the same weights, then saved and loaded: the same losses, the
same norms, and after loading the same bits."""

import json
import os
import tempfile
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from benchmark.config.run_config import RunConfig
from benchmark.slice_run.first_contact.kernel_features import FeatureWrong
from benchmark.slice_run.made_up_state import made_up_batches, made_up_state
from benchmark.slice_run.slice_config import SliceOptions, slice_config
from benchmark.training.checkpoints.checkpoint_folder import checkpoint_path
from benchmark.training.checkpoints.checkpoint_reader import load_checkpoint
from benchmark.training.checkpoints.checkpoint_writer import Checkpointer
from benchmark.training.engine.distributed import Environment, World, joined_world
from benchmark.training.engine.train_state import TrainState
from benchmark.training.step import train_step

Precision = Literal["fp32", "bf16"]
STEPS = 4
LAYERS = 2
SAVE_LIMIT_S = 60.0
TOLERANCES: dict[Precision, tuple[float, float]] = {"fp32": (2e-4, 2e-3), "bf16": (5e-3, 5e-2)}
"""Of losses and of norms, relative. In BF16 a CPU rounds products before it sums them."""


@dataclass(frozen=True)
class TrainedSteps:
    losses: list[float]
    norms: list[float]


def small_config(device: Literal["cuda", "cpu"], precision: Precision, folder: Path) -> RunConfig:
    """The rehearsal's model with fewer layers."""
    options = SliceOptions(
        "rehearsal", device=device, precision=precision, micro_batches=4, micro_batch_size=2, seq_length=64
    )
    return replace(slice_config(options, LAYERS, ""), run_dir=folder / f"{device}_{precision}")


def trained_as_on_a_cpu(precision: Precision, device: torch.device) -> str:
    """A feature of the device."""
    with tempfile.TemporaryDirectory() as folder:
        return train_both(device, precision, Path(folder))


training_in_fp32 = partial(trained_as_on_a_cpu, "fp32")
training_in_bf16 = partial(trained_as_on_a_cpu, "bf16")


def train_both(device: torch.device, precision: Precision, folder: Path) -> str:
    """On the CPU in a process of its own, for a process has one world; then here. Raises FeatureWrong."""
    child = os.fork()
    if not child:
        status = 1
        try:
            _train("cpu", torch.device("cpu"), precision, folder)
            status = 0
        finally:
            os._exit(status)
    if os.waitpid(child, 0)[1]:
        raise RuntimeError("the steps on the CPU failed")
    due = TrainedSteps(**json.loads((folder / f"cpu_{precision}.json").read_text()))
    found, wrong = _train("cuda" if device.type == "cuda" else "cpu", device, precision, folder, given=True)
    said = compared(found, due, precision)
    if wrong:
        raise FeatureWrong(f"{said}; {wrong}")
    return f"{said}; saved and loaded to the bit"


def compared(found: TrainedSteps, due: TrainedSteps, precision: Precision) -> str:
    """How far the steps are from the CPU's; raises FeatureWrong where that is too far, or not a number."""
    worst = {
        name: float(np.max(np.abs(np.subtract(mine, theirs) / theirs)))  # not a number where any is none
        for name, mine, theirs in (("losses", found.losses, due.losses), ("norms", found.norms, due.norms))
    }
    for (name, error), most in zip(worst.items(), TOLERANCES[precision], strict=True):
        if not error <= most:
            raise FeatureWrong(
                f"{name} of {STEPS} steps are off by {error:.2g} of the CPU's; at most {most:.2g} is due"
            )
    return (
        f"{STEPS} steps, " + ", ".join(f"{name} within {error:.1g}" for name, error in worst.items()) + " of the CPU's"
    )


def _train(
    kind: Literal["cuda", "cpu"], device: torch.device, precision: Precision, folder: Path, *, given: bool = False
) -> tuple[TrainedSteps, str]:
    """From made-up weights, written to ``folder``, or with ``given`` from those, and then saved and loaded again: what
    was wrong with that, empty: nothing."""
    config = small_config(kind, precision, folder)
    weights = folder / f"weights_{precision}.npz"
    with joined_world(config.system, Environment(0, 1, device.index or 0, visible_gpus=1)) as world:
        state = made_up_state(config, world)
        if given:
            with np.load(weights) as stored:
                for name, tensor in _own(state).items():
                    tensor.copy_(torch.from_numpy(stored[name]))
        else:
            np.savez(weights, **{name: tensor.numpy() for name, tensor in _own(state).items()})  # type: ignore[arg-type]
        batches, results = made_up_batches(config, world), []
        for _ in range(STEPS):
            results.append(train_step(state, batches))
            state.progress.steps += 1
        found = TrainedSteps([one.loss for one in results], [one.grad_norm for one in results])
        (folder / f"{kind}_{precision}.json").write_text(json.dumps(asdict(found)))
        return found, _wrong_when_loaded(state, config, world) if given else ""


def _wrong_when_loaded(state: TrainState, config: RunConfig, world: World) -> str:
    """What is wrong with a checkpoint of the state; empty: nothing."""
    writer = Checkpointer(state, world.device)
    writer.save()
    written = writer.wait(SAVE_LIMIT_S)
    if written is None or written.failure is not None:
        return f"a checkpoint could not be written: {written.failure if written else 'it takes too long'}"
    loaded = made_up_state(config, world)
    loaded.progress.steps = state.progress.steps
    for tensor in _own(loaded).values():
        tensor.fill_(torch.nan)
    load_checkpoint(loaded, checkpoint_path(config.run_dir, state.progress.steps), world)
    theirs = _own(loaded)
    wrong = [name for name, tensor in _own(state).items() if not torch.equal(tensor, theirs[name])]
    return f"{len(wrong)} tensors are not what was saved, such as {wrong[0]}" if wrong else ""


def _own(state: TrainState) -> dict[str, Tensor]:
    """Weights and moments of this process, by name."""
    return {
        name: tensor.to_local() if isinstance(tensor, DTensor) else tensor for name, tensor in state.tensors().items()
    }
