"""Sizes that the passes keep to, without PyTorch: plans compute with them too."""

import math
from collections.abc import Sequence

LEAST_WEIGHTS = 1 << 26
"""Weights from which a group of parameters is large enough for its messages to run at full speed: values of 128 MiB in
BF16."""
LARGEST_TILE = 256 << 20
"""Bytes of a logits tile in FP32. Softmax and losses are computed tile by tile: without tensor parallelism 2,048 tokens
of 51,200 columns are 400 MiB."""
TILE_ON_CPU = 8 << 20
"""Bytes of a logits tile in FP32 on a CPU, whose caches hold it."""
LARGEST_PRODUCT = 1 << 30
"""Bytes of logits whose products are made at once. Each product with the output's table reads or writes all of its FP32
gradient: Llama 3.1's vocabulary, whose logits of 8,192 tokens are 2 GiB in BF16, has two instead of one per tile."""

MOST_TERMS = 2
"""Micro-batches whose FP8 products are added to a weight's gradient at once. Of each weight and product, a kernel that
adds N of them moves 2 + 8 / N bytes: 10, 6, 4.7, 4. With four, GPT-3 175B on 64 nodes does not fit into an H100."""
LARGEST_TERMS = 8 << 30
"""Bytes of such products that may wait for the last of them: those of Llama 3.1 8B on one node are 7 GB."""


def terms_together(weights: float, passes: int | None) -> int:
    """Return how many products of micro-batches are added to the gradients of a chunk's ``weights`` at once.

    ``passes``: consecutive backward passes of the chunk, which the number divides; None: all of a step. Products that
    wait are BF16.
    """
    most = min(MOST_TERMS, 1 + int(LARGEST_TERMS // (2 * weights)))
    return max(number for number in range(1, most + 1) if passes is None or passes % number == 0)


def rows_of_part(rows: int, row_bytes: int, most_bytes: int) -> int:
    """Return the rows of each part of a matrix in parts of equal size, which have ``most_bytes`` or little more."""
    return math.ceil(rows / math.ceil(rows * row_bytes / most_bytes))


def group_starts(weights: Sequence[float], least_weights: int | None) -> list[int]:
    """Return the first layer of each group of parameters. ``weights``: of the layers, in the order of the forward pass.

    A group has consecutive layers until they hold ``least_weights``; None: all layers are one group. Fewer weights at
    the end join the group before them.
    """
    starts, group_weights = [0], 0.0
    for number, layer_weights in enumerate(weights):
        if least_weights is not None and group_weights >= least_weights:
            starts.append(number)
            group_weights = 0.0
        group_weights += layer_weights
    if least_weights is not None and group_weights < least_weights and len(starts) > 1:
        starts.pop()
    return starts
