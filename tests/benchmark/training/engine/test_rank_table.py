"""Rows of all ranks, some steps after they were sent."""

import math
from pathlib import Path

from benchmark.config.run_config import RunConfig
from benchmark.training.engine.distributed import joined_world, read_environment
from benchmark.training.engine.rank_speed import RankTable
from tests.benchmark.runs import system_of
from tests.benchmark.tiny import Inputs, in_processes

Rows = list[list[float]] | None


def _exchange(config: RunConfig) -> list[Rows]:
    with joined_world(config.system, read_environment()) as world:
        table = RankTable(world, 2)
        found = [table.receive()]
        for sent in (1.0, 2.0):
            table.send([world.rank + sent, math.nan if world.rank == 1 else 1e-300])
            world.barrier()
            found += [table.receive(), table.receive()]
        return found


def test_every_rank_receives_what_all_have_sent(inputs: Inputs, tmp_path: Path) -> None:
    config = inputs.config(tmp_path, system=system_of(2))
    expected = [None, [[1.0, 1e-300], [2.0, math.nan]], None, [[2.0, 1e-300], [3.0, math.nan]], None]
    for found in in_processes(2, _exchange, config):
        assert repr(found) == repr(expected)


def test_a_rank_alone_receives_its_own(inputs: Inputs, tmp_path: Path) -> None:
    (found,) = in_processes(1, _exchange, inputs.config(tmp_path))
    assert found == [None, [[1.0, 1e-300]], None, [[2.0, 1e-300]], None]
