"""Parameters as the passes use them: the rows of all data-parallel ranks, with a gradient in FP32.

The state of a run holds each parameter as a DTensor: each data-parallel rank has an FP32 shard of its rows, of this
rank's part where tensor parallelism cuts it (sharding.py). A whole parameter holds the values of all shards in the
precision of the computation, and the sum of the micro-batches' gradients. A shard is consecutive rows, so values are
gathered and gradients scattered without a copy. With one data-parallel rank no message is sent, and in FP32 no value is
copied either.

Gradients are summed over the ranks once a step (ZeRO 1) or, to hold no more than the shard's, after each backward pass
(ZeRO 2).
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard

from model.kernels import add_product, put_product

Pair = tuple[Tensor, Tensor]
"""Output and input of a collective."""


class WholeParameter:
    """Values and gradient of all rows of a parameter, or of a tensor-parallel rank's part of it."""

    def __init__(self, parameter: DTensor, dtype: torch.dtype) -> None:
        self.parameter = parameter
        mesh = parameter.device_mesh
        _, sharers, self._shards = mesh.shape
        self._rank = mesh.get_local_rank("shard")
        _, over_tensor, _ = parameter.placements
        shape = list(parameter.shape)
        if isinstance(over_tensor, Shard):
            shape[over_tensor.dim] //= sharers
        self._has_terms = sharers > 1 and over_tensor.is_replicate()  # each rank uses it for its own tokens
        self._shard = parameter.to_local().detach()
        self._rows_of_shard = -(-shape[0] // self._shards)  # rows of a shard; the last ones may have fewer, or none
        rows = self._rows_of_shard * self._shards
        device = self._shard.device
        alone = self._shards == 1 and dtype == self._shard.dtype
        self._padded = self._shard if alone else torch.zeros([rows, *shape[1:]], dtype=dtype, device=device)
        self.value = self._padded[: shape[0]]
        """[rows, ...] in the precision of the computation."""
        self._padded_gradient: Tensor | None = None  # [padded rows, ...]; made when it is first needed
        self._place: Callable[[], None] = self._take_memory
        self._reduced: Tensor | None = None  # FP32 [rows of a shard, ...]
        self._shard_gradient: DTensor | None = None
        self._fresh = True
        """True while the gradient is zero."""
        self.scatters_each_pass = False
        """True if the gradient is summed over the shards after each backward pass, and not kept."""
        self._travelling: Pair | None = None
        """The sum over the shards [rows of a shard, ...] that is to arrive, and its terms [padded rows, ...]."""
        self._reduced_is_fresh = True
        """True while no such sum of the step has arrived."""

    @property
    def is_movable(self) -> bool:
        """True if the values may lie in another tensor: they are a copy of the shards, with no rows behind the last."""
        return self._padded is not self._shard and self._padded.shape == self.value.shape

    def move_to(self, room: Tensor, place_gradients: Callable[[], None]) -> None:
        """Keep the values in ``room`` from here on. ``place_gradients`` places this parameter's gradient, and those
        of the others in the same matrix, as soon as the first of them is needed."""
        room.copy_(self.value)
        self._padded = self.value = room
        self._place = place_gradients

    def scatter_each_pass(self) -> None:
        """Sum the gradient over the shards after each backward pass. Vectors, and terms of tensor-parallel ranks, are
        small: they stay until the end of a step."""
        self.scatters_each_pass = self._shards > 1 and self.value.dim() == 2 and not self._has_terms

    @property
    def gradient(self) -> Tensor:
        """FP32 sums [rows, ...], zero before the first addition of a step. Write into it; do not replace it."""
        sums, fresh = self.sums()
        return sums.zero_() if fresh else sums

    def add(self, terms: Tensor) -> None:
        """Add to the gradient, in FP32."""
        sums, fresh = self.sums()
        sums.copy_(terms) if fresh else sums.add_(terms)

    def add_rows(self, terms_TF: Tensor) -> None:
        """Add the sum over rows to the gradient [F] of a bias, summed in FP32."""
        self.add(terms_TF.sum(0, dtype=torch.float32))

    def add_product(self, left_TF: Tensor, right_TH: Tensor) -> None:
        """Add left^T right to the gradient [F, H] of a matrix."""
        sums, fresh = self.sums()
        (put_product if fresh else add_product)(sums, left_TF, right_TH)

    def sums(self) -> tuple[Tensor, bool]:
        """Return the FP32 sums [rows, ...] for the caller to add to, and True if the caller is to overwrite them."""
        if self._padded_gradient is None:
            self._place()
        assert self._padded_gradient is not None
        fresh, self._fresh = self._fresh, False
        return self._padded_gradient[: self.value.shape[0]], fresh

    def _take_memory(self) -> None:
        self.place_gradient(self.value.new_empty(self.value.shape, dtype=torch.float32), fresh=True)

    @property
    def has_gradient(self) -> bool:
        """False until memory is needed for the gradient: once, or in each backward pass."""
        return self._padded_gradient is not None

    def place_gradient(self, rows: Tensor, *, fresh: bool) -> None:
        """Make ``rows`` [rows, ...] the gradient; if they are ``fresh``, their numbers do not count."""
        self._padded_gradient = rows
        if rows.shape != self._padded.shape:
            self._padded_gradient = rows.new_zeros(self._padded.shape)
            self._padded_gradient[: len(rows)] = rows
        self._fresh = fresh

    def put_own_rows(self) -> Pair | None:
        """Copy this rank's shard to its rows among the values; return the tensor to gather into, and this rank's rows
        of it, the same number on all ranks. None if there is one shard."""
        if self._padded is self._shard:
            return None
        rows = self._padded.narrow(0, self._rank * self._rows_of_shard, self._rows_of_shard)
        rows[: self._shard.shape[0]].copy_(self._shard)
        return None if self._shards == 1 else (self._padded, rows)

    def terms(self) -> Tensor | None:
        """Return the gradient if each tensor-parallel rank has a term of it, to be summed in place; else None."""
        return self.gradient if self._has_terms else None

    def to_scatter(self) -> Pair | None:
        """Return the place of the summed gradient's shard, and the tensor to scatter; None if there is one shard."""
        sums, padded = self.gradient, self._padded_gradient
        assert padded is not None and len(sums) <= len(padded)
        if not self.scatters_each_pass:
            return None if self._shards == 1 else (self.shard_sum(), padded)
        self._travelling = padded.new_empty(self._rows_of_shard, *padded.shape[1:]), padded
        self._padded_gradient, self._fresh = None, True  # another pass may add before the sum arrives
        return self._travelling

    def end_scatter(self) -> None:
        """Add the sum that arrived in this pass to the shard's, and free its terms. Nothing happens without one."""
        if self._travelling is None:
            return
        arrived, _ = self._travelling
        sums, self._travelling = self.shard_sum(), None
        sums.copy_(arrived) if self._reduced_is_fresh else sums.add_(arrived)
        self._reduced_is_fresh = False

    def shard_sum(self) -> Tensor:
        """Return this rank's rows of the summed gradient, FP32; all ranks have the same number of rows. With one shard,
        return the gradient."""
        if self._shards == 1:
            return self.gradient
        if self._reduced is None:
            shape = (self._rows_of_shard, *self._padded.shape[1:])
            self._reduced = torch.zeros(shape, dtype=torch.float32, device=self._padded.device)
        return self._reduced

    def publish_gradient(self) -> None:
        """Make the sum over all ranks the gradient of ``parameter``; the next step's gradient begins at zero."""
        if self._shard_gradient is None:
            self._shard_gradient = DTensor.from_local(
                self.shard_sum()[: self._shard.shape[0]],
                self.parameter.device_mesh,
                self.parameter.placements,
                run_check=False,
                shape=self.parameter.shape,
                stride=self.parameter.stride(),
            )
        self.parameter.grad = self._shard_gradient
        self._fresh = self._reduced_is_fresh = True
