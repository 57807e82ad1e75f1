"""A parameter as the passes use it: whole over the data-parallel ranks, with a gradient in FP32.

The state of a run has each parameter as a DTensor: an FP32 shard of its rows on each data-parallel rank, of this rank's
part where tensor parallelism cuts it (parallelize.py). Here the values are gathered once a step in the precision of the
computation, gradients of all micro-batches are summed where they are computed, and the sum is scattered to the shards
once a step: a distributed optimizer (ZeRO 1), without a copy between, for a shard is consecutive rows.

With one data-parallel rank nothing is sent, and in FP32 nothing is copied either.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from model.kernels import add_product, put_product
from model.passes.tensor_group import all_gather_single, reduce_scatter_single

REPLICATE, SHARD, TENSOR = "replicate", "shard", "tensor"
"""Axes of a parameter's mesh."""


class WholeParameter:
    """Values and gradient of one parameter's part of one tensor-parallel rank, all of its rows."""

    def __init__(self, parameter: DTensor, dtype: torch.dtype) -> None:
        self.parameter = parameter
        mesh = parameter.device_mesh
        self._shards, self._rank, self._shard_group = _axis(mesh, SHARD)
        self._replicas, _, self._replica_group = _axis(mesh, REPLICATE)
        names = mesh.mesh_dim_names or ()
        cut = TENSOR in names and not parameter.placements[names.index(TENSOR)].is_replicate()
        sharers, _, tensor_group = _axis(mesh, TENSOR)
        self._sum_group = None if cut or sharers == 1 else tensor_group
        """Each of its ranks has a term of the gradient: the parameter is whole on all and used for their own tokens."""
        shape = list(parameter.shape)
        if cut:
            axis = parameter.placements[names.index(TENSOR)].dim  # type: ignore[attr-defined]
            shape[axis] //= sharers
        self._shard = parameter.to_local().detach()
        self._chunk = -(-shape[0] // self._shards)  # rows of a shard; the last ones may have fewer, or none
        rows = self._chunk * self._shards
        device = self._shard.device
        alone = self._shards == 1 and dtype == self._shard.dtype
        self._padded = self._shard if alone else torch.zeros([rows, *shape[1:]], dtype=dtype, device=device)
        self.value = self._padded[: shape[0]]
        """[rows, ...] in the precision of the computation."""
        self._padded_gradient: Tensor | None = None  # FP32 [padded rows, ...]; made when it is first needed
        self._reduced: Tensor | None = None  # FP32 [rows of a shard, ...]
        self._shard_gradient: DTensor | None = None
        self._fresh = True
        """Nothing was added to the gradient since the last step."""
        self._work: Any = None

    @property
    def gradient(self) -> Tensor:
        """FP32 sums, [rows, ...], zero where nothing was added yet; write into it, do not replace it."""
        sums = self._sums()
        if self._fresh:
            sums.zero_()
            self._fresh = False
        return sums

    def add(self, terms: Tensor) -> None:
        """Add to the gradient, in FP32."""
        if self._fresh:
            self._sums().copy_(terms)
            self._fresh = False
        else:
            self._sums().add_(terms)

    def add_rows(self, terms_TF: Tensor) -> None:
        """Add the sum over rows to the gradient [F] of a bias, summed in FP32."""
        self.add(terms_TF.sum(0, dtype=torch.float32))

    def add_product(self, left_TF: Tensor, right_TH: Tensor) -> None:
        """Add left^T right to the gradient [F, H] of a matrix."""
        if self._fresh:
            put_product(self._sums(), left_TF, right_TH)
            self._fresh = False
        else:
            add_product(self._sums(), left_TF, right_TH)

    def begin_gather(self) -> None:
        """Begin to collect the shards' values. Collective over the data-parallel ranks of a replica."""
        if self._padded is self._shard:
            return
        own = self._padded.narrow(0, self._rank * self._chunk, self._chunk)
        own[: self._shard.shape[0]].copy_(self._shard)
        if self._shard_group is not None:
            self._work = all_gather_single(self._padded, own, group=self._shard_group, async_op=True)

    def end_gather(self) -> None:
        """``value`` may be read from here on."""
        self._wait()

    def begin_reduce(self) -> None:
        """Begin to sum the gradients of all ranks; nothing may be added any more. Collective, as are the following."""
        sums = self.gradient
        if self._sum_group is not None:
            dist.all_reduce(sums, group=self._sum_group)
        if self._shard_group is not None:
            assert self._padded_gradient is not None
            shard = self._gradient_shard()
            self._work = reduce_scatter_single(shard, self._padded_gradient, group=self._shard_group, async_op=True)

    def begin_reduce_replicas(self) -> None:
        """After :meth:`begin_reduce` of all parameters: go on with the sum over replicas."""
        self._wait()
        if self._replica_group is not None:
            self._work = dist.all_reduce(self._gradient_shard(), group=self._replica_group, async_op=True)

    def end_reduce(self) -> None:
        """The sum is there: it becomes the gradient of ``parameter``."""
        self._wait()
        if self._shard_gradient is None:
            own = self._gradient_shard()[: self._shard.shape[0]]
            self._shard_gradient = DTensor.from_local(
                own,
                self.parameter.device_mesh,
                self.parameter.placements,
                run_check=False,
                shape=self.parameter.shape,
                stride=self.parameter.stride(),
            )
        self.parameter.grad = self._shard_gradient
        self._fresh = True

    def _sums(self) -> Tensor:
        if self._padded_gradient is None:
            self._padded_gradient = torch.zeros(self._padded.shape, dtype=torch.float32, device=self._padded.device)
            self._gradient = self._padded_gradient[: self.value.shape[0]]
        return self._gradient

    def _gradient_shard(self) -> Tensor:
        """FP32, [rows of a shard, ...]; with one shard the gradient itself."""
        if self._shard_group is None:
            return self._sums()
        if self._reduced is None:
            shape = (self._chunk, *self._padded.shape[1:])
            self._reduced = torch.zeros(shape, dtype=torch.float32, device=self._padded.device)
        return self._reduced

    def _wait(self) -> None:
        if self._work is not None:
            self._work.wait()
            self._work = None


def _axis(mesh: DeviceMesh, name: str) -> tuple[int, int, dist.ProcessGroup | None]:
    """Size of an axis, this process's place in it, and its group where there is more than one."""
    if name not in (mesh.mesh_dim_names or ()):
        return 1, 0, None
    axis = mesh[name] if mesh.ndim > 1 else mesh
    return axis.size(), axis.get_local_rank(), axis.get_group() if axis.size() > 1 else None
