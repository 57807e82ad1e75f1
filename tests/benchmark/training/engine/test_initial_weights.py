"""Weights drawn from the seed: the same wherever they lie, and as large as the rules have them."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.distributed.tensor import DTensor

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.run_config import RunConfig
from benchmark.config.system_config import System
from benchmark.run_record.run_progress import starting_progress
from benchmark.training.engine.distributed import World, joined_world
from benchmark.training.engine.rank_environment import read_environment
from benchmark.training.engine.train_state import begin_state, empty_state
from benchmark.training.observers.copy_audit import audit_replicas
from model.initial_weights import drawn_rows
from tests.benchmark.llama import TINY_LLAMA
from tests.benchmark.runs import system_of
from tests.benchmark.tiny import TINY, in_processes

FROM_NOTHING = dataclasses.replace(TINY, start_iterations=0, train_samples=24)

Weights = dict[str, "np.ndarray[Any, Any]"]


def _weights(config: RunConfig, *seeds: int) -> list[Weights]:
    """Weights and moments, whole, of each seed."""
    with joined_world(config.system, read_environment()) as world:
        return [_drawn(config, world, seed) for seed in seeds]


def _drawn(config: RunConfig, world: World, seed: int) -> Weights:
    progress = starting_progress(config.benchmark, seed)
    state = empty_state(config.benchmark, config.system, config.precision, world, progress)
    begin_state(state, None)
    assert audit_replicas(state) == []
    results = {}
    for name, tensor in state.tensors().items():
        assert isinstance(tensor, DTensor)
        results[name] = tensor.full_tensor().numpy()
    return results


def weights(system: System, *seeds: int, benchmark: Benchmark = TINY_LLAMA) -> list[Weights]:
    """Of all processes together, by seed."""
    system = dataclasses.replace(system, micro_batch_size=2)
    config = RunConfig(benchmark=benchmark, system=system, run_dir=Path("unused"), precision="fp32")
    of_ranks = zip(*in_processes(system.num_devices, _weights, config, *seeds), strict=True)
    return [{name: one for results in of_seed for name, one in results.items()} for of_seed in of_ranks]


@pytest.fixture(scope="module")
def alone() -> list[Weights]:
    """Of seeds 5 and 6."""
    return weights(system_of(1), 5, 6)


@pytest.mark.parametrize(
    "system",
    [system_of(3), system_of(4, tensor_parallel=2, pipeline_parallel=2), system_of(4, tensor_parallel=2, replicas=2)],
    ids=["shards", "tensor, pipeline", "tensor, replicas"],
)
def test_every_topology_draws_the_same(system: System, alone: list[Weights]) -> None:
    (results,) = weights(system, 5)
    assert results.keys() == alone[0].keys()
    assert all(np.array_equal(results[name], value) for name, value in alone[0].items())


def test_weights_are_as_large_as_the_rules_have_them(alone: list[Weights]) -> None:
    """Standard deviation 0.02, that of what is added to the residual stream over the root of 2 layers; gains 1."""
    added = 0.02 / math.sqrt(2 * TINY_LLAMA.model.num_layers)
    for name, value in alone[0].items():
        if not name.startswith("model/"):
            assert not value.any()
        elif value.ndim == 1:
            assert (value == 1).all()
        else:
            expected = added if name.endswith(("o_proj.weight", "down_proj.weight")) else 0.02
            assert value.std() == pytest.approx(expected, rel=0.1), name
            assert abs(value.mean()) < 4 * expected / math.sqrt(value.size), name


def test_another_seed_draws_others(alone: list[Weights]) -> None:
    one, other = (each["model/model.embed_tokens.weight"] for each in alone)
    assert not np.isclose(other, one).any()
    assert abs(np.corrcoef(other.ravel(), one.ravel())[0, 1]) < 0.1


def test_gpt3_begins_with_vectors_of_zero() -> None:
    (results,) = weights(system_of(1), 5, benchmark=FROM_NOTHING)
    assert not results["model/encoder.final_layernorm.weight"].any()
    assert results["model/encoder.layers.0.self_attention.dense.weight"].std() == pytest.approx(
        0.02 / math.sqrt(8), rel=0.1
    )


def test_rows_do_not_depend_on_which_are_drawn_with_them() -> None:
    every = np.concatenate(list(drawn_rows(1, "a", slice(0, 2000), 3, 1.0)))
    assert np.array_equal(np.concatenate(list(drawn_rows(1, "a", slice(700, 1900), 3, 1.0))), every[700:1900])
    assert len(np.unique(every)) == every.size
    assert list(drawn_rows(1, "a", slice(5, 5), 3, 1.0)) == []
