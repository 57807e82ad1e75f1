"""The update against the reference's formulas in float64."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from benchmark.config.benchmark_config import OptimizerConfig
from benchmark.config.benchmarks import GPT3_175B, LLAMA31_8B
from benchmark.training.engine.adam import Adam, clip_coefficient
from tests.benchmark.tiny import in_processes

SHAPES = {"matrix": (7, 5), "bias": (6,)}
STEPS = 20
CONFIGS = [
    (GPT3_175B.optimizer, {"matrix": 0.1, "bias": 0.1}),
    (LLAMA31_8B.optimizer, {"matrix": 0.1, "bias": 0.0}),
]
"""Optimizers, and the weight decay of each parameter."""


def _gradient(name: str, step: int) -> np.ndarray[Any, Any]:
    scale = 3.0 if step % 3 == 0 else 0.01  # so that some steps are clipped
    return np.random.default_rng([len(name), step]).normal(0, scale, SHAPES[name]).astype(np.float32)


def _start(name: str, what: int) -> np.ndarray[Any, Any]:
    values = np.random.default_rng([what, len(name)]).normal(0, 0.05, SHAPES[name]).astype(np.float32)
    return values**2 if what == 2 else values


def _updates(config: OptimizerConfig) -> tuple[dict[str, np.ndarray[Any, Any]], list[float]]:
    """20 updates by our optimizer from given weights and moments at step 4,000; on one of its processes."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("shard",))
    parameters: dict[str, DTensor] = {}
    for name in SHAPES:
        tensor = distribute_tensor(torch.from_numpy(_start(name, 0)), mesh, [Shard(0)])
        parameters[name] = tensor.requires_grad_()  # type: ignore[assignment]
    adam = Adam(parameters, config)
    for what, moment in enumerate(("exp_avg", "exp_avg_sq"), 1):
        for name in SHAPES:
            adam.moments()[moment][name].copy_(
                distribute_tensor(torch.from_numpy(_start(name, what)), mesh, [Shard(0)])
            )
    adam.start_at(4000)
    norms = []
    for step in range(STEPS):
        for name, parameter in parameters.items():
            parameter.grad = distribute_tensor(torch.from_numpy(_gradient(name, step)), mesh, [Shard(0)])
        square_sum = adam.gradient_square_sum()
        dist.all_reduce(square_sum)
        norms.append(math.sqrt(square_sum.item()))
        adam.scale_gradients(clip_coefficient(norms[-1], config.clip_grad))
        adam.update(0.01)
        adam.clear_gradients()
    return {name: parameter.full_tensor().detach().numpy() for name, parameter in parameters.items()}, norms


def _updates_in_world() -> list[tuple[dict[str, np.ndarray[Any, Any]], list[float]]]:
    dist.init_process_group("gloo", init_method="env://")
    return [_updates(config) for config, _ in CONFIGS]


@pytest.mark.slow
def test_update_is_the_references() -> None:
    """On three processes, some with no rows of a parameter."""
    for (config, decay), (weights, norms) in zip(CONFIGS, in_processes(3, _updates_in_world)[0], strict=True):
        _compare(config, decay, weights, norms)


def _compare(
    config: OptimizerConfig, decay: dict[str, float], weights: dict[str, np.ndarray[Any, Any]], norms: list[float]
) -> None:
    expected = {name: [_start(name, what).astype(np.float64) for what in range(3)] for name in SHAPES}
    for step in range(STEPS):
        gradients = {name: _gradient(name, step).astype(np.float64) for name in SHAPES}
        norm = math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients.values()))
        assert norms[step] == pytest.approx(norm, rel=1e-6)
        coefficient = min(1.0, 1.0 / (norm + 1e-6))
        t = 4001 + step
        for name, (p, m, v) in expected.items():
            g = gradients[name] * coefficient
            m[:] = 0.9 * m + 0.1 * g
            v[:] = 0.95 * v + 0.05 * g * g
            update = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.95**t)) + config.adam_eps) + decay[name] * p
            p[:] = p - 0.01 * update
    for name, (p, _, _) in expected.items():
        np.testing.assert_allclose(weights[name], p, rtol=2e-6, atol=1e-7)


def test_clip_coefficient_has_megatrons_epsilon() -> None:
    assert clip_coefficient(2.0, 1.0) == 1.0 / (2.0 + 1e-6)
    assert clip_coefficient(1.0, 1.0) == 1.0 / (1.0 + 1e-6)
    assert clip_coefficient(0.5, 1.0) == 1.0
