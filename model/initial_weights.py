"""Initial weights of a run without an initial checkpoint: drawn from its seed, the same in every topology.

The random numbers of a row of a matrix follow from the seed, the parameter's name and the row's number. A rank draws
the rows of its shard and stores its columns of them, so no rank draws all rows, and no number depends on the topology.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from model.architectures import architecture_of
from model.decoder_sizes import DecoderSizes

DEVIATION = 0.02
"""Standard deviation of the initial matrices. Matrices whose products are added to the residual stream have this over
the root of the number of such matrices, 2 a layer."""
ROWS_AT_ONCE = 1024


def draw_initial_weights(parameters: Mapping[str, DTensor], sizes: DecoderSizes, seed: int) -> None:
    """Fill this rank's shards: matrices with random numbers, vectors with the architecture's initial value."""
    architecture = architecture_of(sizes)
    for name, parameter in parameters.items():
        target = parameter.to_local().detach()
        if parameter.dim() == 1:
            target.fill_(architecture.vectors_begin_at)
            continue
        (height, width), (first_row, first_column) = compute_local_shape_and_global_offset(
            parameter.shape, parameter.device_mesh, parameter.placements
        )
        terms = 2 * sizes.num_layers if name.endswith(architecture.added) else 1
        rows = slice(first_row, first_row + height)
        filled = 0
        for values in drawn_rows(seed, name, rows, parameter.shape[1], DEVIATION / math.sqrt(terms)):
            columns = values[:, first_column : first_column + width]
            target[filled : filled + len(values)].copy_(torch.from_numpy(columns))
            filled += len(values)


def drawn_rows(seed: int, name: str, rows: slice, width: int, deviation: float) -> Iterator[npt.NDArray[np.float32]]:
    """Yield rows of a matrix with all columns, [at most ROWS_AT_ONCE, width]."""
    key = int.from_bytes(hashlib.blake2b(f"{seed} {name}".encode(), digest_size=16).digest(), "little")
    for first in range(rows.start, rows.stop, ROWS_AT_ONCE):
        values = np.empty((min(ROWS_AT_ONCE, rows.stop - first), width), dtype=np.float32)
        for number, row in enumerate(values, first):
            generator = np.random.Generator(np.random.Philox(key=key, counter=number << 128))
            generator.standard_normal(out=row, dtype=np.float32)
        values *= np.float32(deviation)
        yield values
