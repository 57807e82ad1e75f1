"""Eight steps of the trainer from a converted checkpoint, against the reference's update in float64.

The update: docs/facts/reference.md e.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.tensor import DTensor

import benchmark.training.loop as loop_module
import benchmark.training.resume_point as resume_point_module
import benchmark.training.train as train_module
from benchmark.config.run_config import RunConfig
from benchmark.training.engine.adam import Adam
from benchmark.training.engine.train_state import TrainState, begin_state
from tests.benchmark.runs import events, system_of
from tests.benchmark.tiny import TINY, Inputs, in_processes

STEPS, BAD_STEP = 8, 3
Arrays = dict[str, "np.ndarray[Any, Any]"]


def whole(tensor: torch.Tensor) -> "np.ndarray[Any, Any]":
    assert isinstance(tensor, DTensor)
    values: np.ndarray[Any, Any] = tensor.full_tensor().detach().numpy().copy()
    return values


@dataclasses.dataclass
class Recorded:
    """What one process saw; of a pipeline, only its stage's parameters."""

    start: Arrays
    gradients: list[Arrays]
    end: Arrays


def _train_recording(config: RunConfig) -> Recorded:
    """Train with a gradient that is not finite in one step, and record gradients before clipping."""
    recorded = Recorded({}, [], {})
    states: list[TrainState] = []
    square_sum = Adam.gradient_square_sum

    def remember(state: TrainState, checkpoint: Any) -> str:
        told = begin_state(state, checkpoint)
        states.append(state)
        recorded.start = {name: whole(tensor) for name, tensor in state.tensors().items()}
        return told

    def recording(adam: Adam) -> torch.Tensor:
        if len(recorded.gradients) == BAD_STEP:
            adam._gradients()[0].fill_(float("nan"))
        recorded.gradients.append({name: whole(value.grad) for name, value in adam._parameters.items()})  # type: ignore[arg-type]
        return square_sum(adam)

    setattr(Adam, "gradient_square_sum", recording)  # noqa: B010
    setattr(resume_point_module, "begin_state", remember)  # noqa: B010
    run_loop = loop_module.run_loop

    def run_and_look(*arguments: Any) -> Any:
        status = run_loop(*arguments)
        recorded.end = {name: whole(tensor) for name, tensor in states[0].tensors().items()}
        return status

    setattr(train_module, "run_loop", run_and_look)  # noqa: B010
    assert train_module.train(config) == "success"
    return recorded


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "precision"),
    [(system_of(2), "bf16"), (system_of(4, tensor_parallel=2, pipeline_parallel=2), "fp32")],
    ids=["sharded", "tensor, pipeline"],
)
def test_eight_steps_are_the_references(system: Any, precision: str, inputs: Inputs, tmp_path: Path) -> None:
    hyper = dataclasses.replace(TINY.optimizer, clip_grad=1.0)
    benchmark = dataclasses.replace(TINY, optimizer=hyper, train_samples=(4000 + STEPS) * 12)
    config = inputs.config(tmp_path / "run", benchmark, system=system, precision=precision)
    config = dataclasses.replace(config, system=dataclasses.replace(config.system, micro_batch_size=6))
    recorded = in_processes(system.num_devices, _train_recording, config)
    start = {name: value.astype(np.float64) for each in recorded for name, value in each.start.items()}
    end = {name: value for each in recorded for name, value in each.end.items()}
    gradients = [
        {name: value.astype(np.float64) for each in recorded for name, value in each.gradients[step].items()}
        for step in range(STEPS)
    ]
    assert len(gradients[0]) == 52
    logged = events(config.run_dir, "step")
    updates, clipped = 0, 0
    for step in range(STEPS):
        samples = 48_000 + updates * 12  # of scheduled steps: a skipped one does not count, as in the reference
        ratio = (samples - 265 * 16) / ((108_600 - 265) * 16)
        rate = hyper.min_lr + 0.5 * (math.cos(math.pi * ratio) + 1) * (hyper.lr - hyper.min_lr)
        assert logged[step]["learning_rate"] == rate
        assert logged[step]["consumed_samples"] == 48_000 + (step + 1) * 12
        norm = math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients[step].values()))
        assert logged[step]["skipped"] is (step == BAD_STEP)
        if step == BAD_STEP:
            assert math.isnan(norm) and math.isnan(logged[step]["grad_norm"])
            continue
        assert logged[step]["grad_norm"] == pytest.approx(norm, rel=1e-6)
        updates += 1
        clipped += norm > hyper.clip_grad
        coefficient = min(1.0, hyper.clip_grad / (norm + 1e-6))
        for name, gradient in gradients[step].items():
            p, m, v = (start[f"{kind}/{name}"] for kind in ("model", "exp_avg", "exp_avg_sq"))
            g = gradient * coefficient
            m[:] = 0.9 * m + 0.1 * g
            v[:] = 0.95 * v + 0.05 * g * g
            t = 4000 + updates
            p -= rate * ((m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.95**t)) + 1e-8) + 0.1 * p)
    assert clipped > 0
    for name, expected in start.items():
        np.testing.assert_allclose(end[name], expected, rtol=2e-5, atol=2e-7, err_msg=name)
