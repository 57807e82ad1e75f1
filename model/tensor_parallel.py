"""Tensor parallelism with sequence parallelism: each layer's matrices are cut over the ranks of one group.

Between the matrix products each rank holds all of the hidden state of its own part of the sequence (axis s, S / ranks
tokens); inside them all of the sequence for its own heads, feed-forward columns or vocabulary rows. What crosses is one
all-gather before and one reduce-scatter after (Korthikanti et al., arXiv:2205.05198; docs/facts/reference.md d).

Parameters are DTensors, for checkpoints and for FSDP; the computation is on local tensors with explicit collectives.
A parameter that all ranks have whole is used by each for its own tokens, so its gradient there is one term of a sum
(``Partial``), which FSDP adds up before it reduces over the data-parallel ranks.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor

from model.gpt3 import LayerNorm, SelfAttention
from model.kernels import layer_norm
from model.losses import OutputLayer, cross_entropy, in_turns
from model.passes.tensor_group import ForwardWatch

C10D = torch.ops._c10d_functional
"""Collectives that return their result: torch.compile and selective recomputation understand them."""


_watches: list[ForwardWatch] = []


def watch_collectives(watch: ForwardWatch | None) -> None:
    """Tell ``watch`` of pauses from now on, or nobody. What torch.compile has compiled tells nobody."""
    _watches[:] = [] if watch is None else [watch]


class _GatherSequence(torch.autograd.Function):
    """[s, B, H] of each rank to [S, B, H]; backward, each rank's part of the sum of the gradients."""

    @staticmethod
    def forward(ctx: Any, x_sBH: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _all_gather(x_sBH, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _reduce_scatter(gradients[0], ctx.group), None


class _ScatterSum(torch.autograd.Function):
    """[S, B, H] of each rank to each rank's part [s, B, H] of their sum; backward, the gradient of all parts."""

    @staticmethod
    def forward(ctx: Any, x_SBH: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _reduce_scatter(x_SBH, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _all_gather(gradients[0], ctx.group), None


def _all_gather(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    x = x.contiguous()
    return _watched(lambda: C10D.all_gather_into_tensor(x, group.size(), group.group_name))


def _reduce_scatter(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    x = x.contiguous()
    return _watched(lambda: C10D.reduce_scatter_tensor(x, "sum", group.size(), group.group_name))


def _watched(collective: Callable[[], Tensor]) -> Tensor:
    """The result of a collective, once it is there."""
    if torch.compiler.is_compiling() or not _watches:
        return cast(Tensor, C10D.wait_tensor(collective()))
    _watches[0].pause()
    result = cast(Tensor, C10D.wait_tensor(collective()))
    _watches[0].resume()
    return result


def gather_sequence(x_BsH: Tensor, group: dist.ProcessGroup) -> Tensor:
    """All tokens from every rank's part: [B, S / ranks, H] to [B, S, H]."""
    # Collectives work on the first axis; swapping it costs no copy at one sample per micro-batch.
    x_SBH: Tensor = _GatherSequence.apply(x_BsH.transpose(0, 1), group)  # type: ignore[no-untyped-call]
    return x_SBH.transpose(0, 1)


def scatter_sum(x_BSH: Tensor, group: dist.ProcessGroup) -> Tensor:
    """This rank's part of the sequence of the sum over ranks: [B, S, H] to [B, S / ranks, H]."""
    x_sBH: Tensor = _ScatterSum.apply(x_BSH.transpose(0, 1), group)  # type: ignore[no-untyped-call]
    return x_sBH.transpose(0, 1).contiguous()


def whole(parameter: nn.Parameter) -> Tensor:
    """A parameter that every rank has whole, for use on this rank's tokens only."""
    return cast(DTensor, parameter).to_local(grad_placements=[Partial()])


def part(parameter: nn.Parameter) -> Tensor:
    """This rank's part of a parameter that is cut."""
    return cast(DTensor, parameter).to_local()


class ColumnParallelLinear(nn.Module):
    """Output features cut over the ranks: [B, S / ranks, H] to [B, S, F / ranks]."""

    def __init__(self, linear: nn.Linear, mesh: DeviceMesh) -> None:
        super().__init__()
        self.group = mesh.get_group()
        self.weight = distribute(linear.weight, mesh, Shard(0))
        self.bias = distribute(linear.bias, mesh, Shard(0))

    def forward(self, x_BsH: Tensor) -> Tensor:
        return F.linear(gather_sequence(x_BsH, self.group), part(self.weight), part(self.bias))


class RowParallelLinear(nn.Module):
    """Input features cut over the ranks: [B, S, F / ranks] to [B, S / ranks, H]. The bias is added to the sum, once."""

    def __init__(self, linear: nn.Linear, mesh: DeviceMesh) -> None:
        super().__init__()
        self.group = mesh.get_group()
        self.weight = distribute(linear.weight, mesh, Shard(1))
        self.bias = distribute(linear.bias, mesh, Replicate())

    def forward(self, x_BSF: Tensor) -> Tensor:
        return scatter_sum(F.linear(x_BSF, part(self.weight)), self.group) + whole(self.bias)


class SequenceParallelLayerNorm(nn.Module):
    """A LayerNorm whose parameters every rank has whole; each rank normalises its own tokens of the sequence."""

    def __init__(self, norm: LayerNorm, mesh: DeviceMesh) -> None:
        super().__init__()
        self.weight = distribute(norm.weight, mesh, Replicate())
        self.bias = distribute(norm.bias, mesh, Replicate())

    def forward(self, x_BsH: Tensor) -> Tensor:
        return layer_norm(x_BsH, 1 + whole(self.weight), whole(self.bias))


class VocabParallelEmbedding(nn.Module):
    """Rows of the word table cut over the ranks: tokens [B, S] to hidden state [B, S / ranks, H]."""

    def __init__(self, embedding: nn.Embedding, mesh: DeviceMesh) -> None:
        super().__init__()
        self.group = mesh.get_group()
        self.weight = distribute(embedding.weight, mesh, Shard(0))

    def forward(self, tokens_BS: Tensor) -> Tensor:
        weight_vH = part(self.weight)
        row = tokens_BS - dist.get_rank(self.group) * weight_vH.shape[0]
        elsewhere = (row < 0) | (row >= weight_vH.shape[0])
        x_BSH = F.embedding(row.masked_fill(elsewhere, 0), weight_vH).masked_fill(elsewhere.unsqueeze(-1), 0)
        return scatter_sum(x_BSH, self.group)


class SequenceParallelPositions(nn.Module):
    """Position embedding of this rank's part of the sequence: positions [S] to [S / ranks, H]."""

    def __init__(self, embedding: nn.Embedding, mesh: DeviceMesh) -> None:
        super().__init__()
        self.group = mesh.get_group()
        self.weight = distribute(embedding.weight, mesh, Replicate())

    def forward(self, positions_S: Tensor) -> Tensor:
        own = positions_S.chunk(self.group.size())[dist.get_rank(self.group)]
        return F.embedding(own, whole(self.weight))


class VocabParallelOutputLayer(nn.Module):
    """Token losses [B, S] from this rank's part of the sequence and its rows of the word table."""

    def __init__(self, _: OutputLayer, mesh: DeviceMesh) -> None:
        super().__init__()
        self.group = mesh.get_group()

    def forward(self, x_BsH: Tensor, weight_VH: nn.Parameter, labels_BS: Tensor) -> Tensor:
        return in_turns(self._losses, gather_sequence(x_BsH, self.group), part(weight_VH), labels_BS)

    def _losses(self, x_TH: Tensor, weight_vH: Tensor, labels_T: Tensor) -> Tensor:
        return cross_entropy(F.linear(x_TH, weight_vH), labels_T, self.group)


def distribute(parameter: Tensor, mesh: DeviceMesh, placement: Placement) -> nn.Parameter:
    """The parameter as a DTensor on ``mesh``; nothing is sent, for its values come from a checkpoint later."""
    return nn.Parameter(distribute_tensor(parameter.detach(), mesh, [placement], src_data_rank=None))


PARALLEL: dict[str, Callable[[Any, DeviceMesh], nn.Module]] = {
    "word_embeddings": VocabParallelEmbedding,
    "position_embeddings": SequenceParallelPositions,
    "input_layernorm": SequenceParallelLayerNorm,
    "query_key_value": ColumnParallelLinear,
    "dense": RowParallelLinear,
    "post_attention_layernorm": SequenceParallelLayerNorm,
    "dense_h_to_4h": ColumnParallelLinear,
    "dense_4h_to_h": RowParallelLinear,
    "final_layernorm": SequenceParallelLayerNorm,
    "output_layer": VocabParallelOutputLayer,
}
"""What takes the place of each layer, by its name in ``gpt3.py``."""


def apply_tensor_parallel(model: nn.Module, mesh: DeviceMesh) -> None:
    """Replace the layers of a GPT3, or of a part of one, by their parallel counterparts on ``mesh``."""
    for module in list(model.modules()):
        if isinstance(module, SelfAttention):
            module.num_heads //= mesh.size()
        for name, child in list(module.named_children()):
            if name in PARALLEL:
                setattr(module, name, PARALLEL[name](child, mesh))
