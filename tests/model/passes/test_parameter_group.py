"""Groups of parameters: their layers, and the order in which their values are gathered."""

from functools import partial
from itertools import groupby

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from model.passes.parameter_group import GroupedLayer, grouped
from model.passes.whole_parameter import WholeParameter
from tests.model.passes.on_mesh import one_process, spread


def layers_of(mesh: DeviceMesh, sizes: list[int], refreshed: list[int]) -> list[GroupedLayer]:
    plain = nn.ParameterList(nn.Parameter(torch.full((size, 1), float(size))) for size in sizes)
    parameters = [WholeParameter(parameter, torch.bfloat16) for parameter in spread(plain, mesh).values()]

    return [GroupedLayer([parameter], partial(refreshed.append, number)) for number, parameter in enumerate(parameters)]


@pytest.mark.parametrize(
    ("sizes", "least_weights", "lengths"),
    [
        ([5, 3, 1, 9], None, [4]),
        ([5, 3, 1, 9], 1, [1, 1, 1, 1]),
        ([5, 3, 1, 9], 6, [2, 2]),
        ([9, 3, 3, 3, 1], 6, [1, 4]),  # three and one are too few for a group
        ([9, 3, 3, 3, 3], 6, [1, 2, 2]),
        ([1, 1], 6, [2]),
    ],
)
def test_consecutive_layers_are_a_group(sizes: list[int], least_weights: int | None, lengths: list[int]) -> None:
    with one_process() as mesh:
        groups = grouped(layers_of(mesh, sizes, []), least_weights)
        assert len(groups) == len(sizes)
        assert [len(list(members)) for _, members in groupby(groups, id)] == lengths


def test_a_group_that_has_arrived_begins_the_next() -> None:
    refreshed: list[int] = []
    with one_process() as mesh:
        layers = layers_of(mesh, [5, 3, 4], refreshed)
        first, second, third = grouped(layers, 1)
        assert (first.following, second.following, third.following) == (second, third, None)
        values = [layer.parameters[0].value for layer in layers]
        first.begin_gather()
        second.end_gather()  # has not begun
        assert refreshed == [] and [float(value[0]) for value in values] == [5, 0, 0]
        first.end_gather()
        first.end_gather()
        assert refreshed == [0] and [float(value[0]) for value in values] == [5, 3, 0]
        second.end_gather()
        third.end_gather()
        assert refreshed == [0, 1, 2] and [float(value[0]) for value in values] == [5, 3, 4]
