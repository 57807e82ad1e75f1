"""Whether weights and moments are finite and of normal size, on two processes."""

import math
from pathlib import Path

from benchmark.config.run_config import RunConfig
from benchmark.training.engine.adam import local
from benchmark.training.engine.distributed import joined_world, read_environment
from benchmark.training.engine.unsound_values import StateSoundness, check_state
from tests.benchmark.runs import loaded_state, system_of
from tests.benchmark.tiny import Inputs, in_processes

NAME = "embedding.word_embeddings.weight"


def _checks(config: RunConfig) -> list[StateSoundness]:
    """As it is; with a flipped bit of a weight on rank 1; then also with a moment that is not a number on rank 0."""
    with joined_world(config.system, read_environment()) as world:
        state = loaded_state(config, world)
        found = [check_state(state)]
        if world.rank == 1:
            local(state.parameters[NAME].detach())[0, 0] = -1.7e38
        found.append(check_state(state))
        if world.rank == 0:
            local(state.optimizer.moments()["exp_avg"][NAME])[0, :2] = math.nan
        return [*found, check_state(state)]


def test_damage_is_named_on_all_processes(inputs: Inputs, tmp_path: Path) -> None:
    here, there = in_processes(2, _checks, inputs.config(tmp_path / "run", system=system_of(2)))
    assert repr(here) == repr(there)
    sound, flipped, nonfinite = here
    assert sound == StateSoundness(()) and sound.finite
    (weight,) = flipped.tensors
    assert (weight.name, weight.rank, weight.nonfinite) == (f"model/{NAME}", 1, 0)
    assert 1.6e38 < weight.largest < 1.8e38
    assert flipped.finite
    moment, again = nonfinite.tensors
    assert (moment.name, moment.rank, moment.nonfinite) == (f"exp_avg/{NAME}", 0, 2)
    assert again == weight
    assert not nonfinite.finite
