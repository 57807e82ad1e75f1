"""Divide a device's parameters into the groups that travel together, by the rule of this repository's engine.

All weights of a group are gathered in one message, and all its gradients summed in one. Each message travels beside the
passes of another group, except those of the first group: its weights are needed at once, and its gradients complete
last.
"""

import itertools

from benchmark.planning.step_model.workload import Workload
from model.passes.pass_sizes import LEAST_WEIGHTS, group_starts


def group_weights(work: Workload) -> list[float]:
    """Return the weights of each group on the pipeline's first device, whose messages hold up all others.

    Norms and biases are left out, and so is a table of positions. In a pipeline each model chunk is a group.
    """
    layout, model = work.layout, work.model
    layer, table = (weights / layout.tensor_parallel for weights in (model.layer_matrix_weights, work.table_weights))
    if layout.pipeline_parallel > 1:
        chunks = [layers * layer for layers in work.layers_of_stages[:: layout.pipeline_parallel]]
        return [chunks[0] + table, *chunks[1:]]
    layers = [layer] * model.num_layers
    layers[0] += table
    if not model.tied:
        layers.append(table)
    starts = group_starts(layers, LEAST_WEIGHTS)
    return [sum(layers[first:end]) for first, end in itertools.pairwise([*starts, len(layers)])]
