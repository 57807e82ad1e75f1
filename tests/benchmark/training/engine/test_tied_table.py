"""The word table's two copies: which processes have them, and the sum of their gradients."""

from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor

from benchmark.config.system_config import System
from benchmark.training.engine.distributed import joined_world, read_environment
from benchmark.training.engine.train_state import TiedTable
from tests.benchmark.runs import system_of
from tests.benchmark.tiny import in_processes

WORDS = "embedding.word_embeddings.weight"


def _add(system: System) -> dict[str, Any]:
    with joined_world(system, read_environment()) as world:
        table = TiedTable(world, WORDS)
        mesh = world.mesh["shard"]
        parameters: dict[str, DTensor] = {}
        for name in (WORDS, "other"):
            value = distribute_tensor(torch.zeros(2, 2), mesh, [Replicate()], src_data_rank=None)
            parameters[name] = value.requires_grad_()  # type: ignore[assignment]
            own = torch.full((2, 2), 10.0**world.rank)
            parameters[name].grad = DTensor.from_local(own, mesh, [Replicate()], run_check=False)
        table.add_gradients(parameters)
        gradients = [value.grad for value in parameters.values()]
        assert all(isinstance(gradient, DTensor) for gradient in gradients)
        return {
            "other": table.other,
            "second": table.is_second_copy,
            "gradients": [gradient.to_local()[0, 0].item() for gradient in gradients if isinstance(gradient, DTensor)],
        }


def test_first_and_last_stage_add_their_gradients() -> None:
    found = in_processes(4, _add, system_of(4, pipeline_parallel=2))
    assert [one["other"] for one in found] == [2, 3, 0, 1]
    assert [one["second"] for one in found] == [False, False, True, True]
    assert [one["gradients"] for one in found] == [[101, 1], [1010, 10], [101, 100], [1010, 1000]]


def test_stages_between_have_no_copy() -> None:
    found = in_processes(3, _add, system_of(3, pipeline_parallel=3))
    assert [one["other"] for one in found] == [2, None, 0]
    assert [one["gradients"][0] for one in found] == [101, 10, 101]


def test_without_a_pipeline_there_is_one_table() -> None:
    (found,) = in_processes(1, _add, system_of(1))
    assert found == {"other": None, "second": False, "gradients": [1, 1]}
