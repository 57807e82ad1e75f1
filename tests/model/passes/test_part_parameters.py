"""One message for all parameters of a part. What arrives in each of them: test_whole_parameter.py."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from model.passes.whole_parameter import PartParameters, gather_all, scatter_all, sum_all
from tests.benchmark.tiny import in_processes
from tests.model.passes.on_mesh import mesh_of, spread, whole_parameters

RANKS = 3


def _messages() -> dict[str, Any]:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    group, rank = dist.group.WORLD, dist.get_rank()
    assert group is not None
    outputs = [torch.zeros(RANKS * size) for size in (2, 5)]
    own = [torch.full((size,), float(rank + size)) for size in (2, 5)]
    gather_all(list(zip(outputs, own, strict=True)), group).wait()
    shards = [torch.zeros(size) for size in (1, 4)]
    terms = [torch.arange(RANKS * size, dtype=torch.float32) * (rank + 1) for size in (1, 4)]
    scatter_all(list(zip(shards, terms, strict=True)), group).wait()
    sums = [torch.full((size,), float(rank)) for size in (3, 1)]
    sum_all(sums, group).wait()

    torch.manual_seed(1)  # the same weights on all
    model = spread(nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 2)), mesh_of(shards=RANKS))
    parameters = whole_parameters(model, torch.float32)
    for number, one in enumerate(parameters.values()):
        one.add(torch.full(one.value.shape, float(number + rank)))
    together = PartParameters(list(parameters.values()))
    together.begin_reduce()
    together.begin_reduce_replicas()
    together.end_reduce()
    gradients = []
    for parameter in model.values():
        assert isinstance(parameter.grad, DTensor)
        gradient = parameter.grad.full_tensor()
        gradients.append([gradient.min().item(), gradient.max().item()])
    return {
        "gathered": [one.tolist() for one in outputs],
        "scattered": [one.tolist() for one in shards],
        "summed": [one.tolist() for one in sums],
        "gradients": gradients,
    }


def test_all_tensors_of_a_message_arrive() -> None:
    for rank, found in enumerate(in_processes(RANKS, _messages)):
        assert found["gathered"] == [[rank + size for rank in range(RANKS) for _ in range(size)] for size in (2, 5)]
        assert found["scattered"] == [[6.0 * rank], [6.0 * (4 * rank + number) for number in range(4)]]
        assert found["summed"] == [[3.0] * 3, [3.0]]
        assert found["gradients"] == [[3.0 * number + 3.0] * 2 for number in range(4)]
