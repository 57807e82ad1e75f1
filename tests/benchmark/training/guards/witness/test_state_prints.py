"""Fingerprints of the state: each value counts once, wherever it lies."""

from pathlib import Path

import numpy as np
import pytest

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import RunConfig
from benchmark.evidence.tensor_prints import joined_halves
from benchmark.training.engine.distributed import joined_world, read_environment
from benchmark.training.engine.run_progress import starting_progress
from benchmark.training.engine.train_state import empty_state, load_initial
from benchmark.training.guards.witness.later_sum import LaterSum
from benchmark.training.guards.witness.state_prints import StatePrints, parameter_sizes
from benchmark.training.guards.witness.tensor_fingerprint import fingerprint
from checkpoint_convert.formats.boxes import whole_box
from checkpoint_convert.formats.megatron_checkpoint import MegatronCheckpoint
from tests.benchmark.runs import system_of
from tests.benchmark.tiny import MODEL, Inputs, in_processes
from tests.benchmark.training.test_topologies import whole


def test_names_and_sizes_of_the_whole_model() -> None:
    sizes = parameter_sizes(GPT3_175B.model)
    assert len(sizes) == 4 + 96 * 12
    assert sum(sizes.values()) == 96 * (12 * 12288**2 + 13 * 12288) + (51200 + 2048 + 2) * 12288


def _prints(config: RunConfig) -> tuple[list[int], list[int], list[float]]:
    with joined_world(config.system, read_environment()) as world:
        state = empty_state(config, world, starting_progress(config.benchmark, 1))
        assert config.data.checkpoint is not None
        load_initial(state, MegatronCheckpoint(config.data.checkpoint))
        prints = StatePrints(state)
        weights, moments = (LaterSum(row, world).result().numpy() for row in (prints.weights(), prints.moments()))
        low, high, projections = np.split(weights, 3)
        first_low, first_high, second_low, second_high = np.split(moments, 4)
        found = [joined_halves(low, high), joined_halves(first_low, first_high), joined_halves(second_low, second_high)]
        expected = []
        for name in prints.names if world.size == 1 else ():
            tensor = whole(state.parameters[name].detach())
            expected.append(int(fingerprint(tensor, whole_box(tensor.shape), tensor.shape)) % 2**64)
        return np.concatenate(found).tolist(), expected, projections.tolist()


@pytest.mark.slow
def test_every_topology_gives_the_same(inputs: Inputs, tmp_path: Path) -> None:
    ((alone, expected, projections),) = in_processes(1, _prints, inputs.config(tmp_path))
    names = len(parameter_sizes(MODEL))
    assert alone[:names] == expected
    assert len(set(alone)) > 2 * names
    for system in (
        system_of(4, replicas=2, tensor_parallel=2, micro_batch_size=3),
        system_of(3, pipeline_parallel=3),
    ):
        for found, _, others in in_processes(system.num_devices, _prints, inputs.config(tmp_path, system=system)):
            assert found == alone, system
            assert others == pytest.approx(projections, abs=1e-9)
