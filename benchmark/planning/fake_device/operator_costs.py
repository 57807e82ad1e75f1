"""The work that an operator gives to the device: its kind, the FLOPs of products, the bytes read and written."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

_aten: Any = torch.ops.aten

OperatorKind = Literal["matmul", "attention", "elementwise", "reduction", "copy", "optimizer", "collective"]
KINDS: tuple[OperatorKind, ...] = ("matmul", "attention", "elementwise", "reduction", "copy", "optimizer", "collective")

MATMULS: dict[str, tuple[int, int]] = {
    "mm": (0, 1),
    "addmm": (1, 2),
    "addmm_": (1, 2),
    "bmm": (0, 1),
    "baddbmm": (1, 2),
    "baddbmm_": (1, 2),
    "_scaled_mm": (0, 1),
}
"""Matrix products by name without overload, and the positions of the arguments that are multiplied."""

ATTENTION: dict[str, int] = {
    "_scaled_dot_product_flash_attention_for_cpu": 1,
    "_scaled_dot_product_flash_attention_for_cpu_backward": 2,
    "_scaled_dot_product_flash_attention": 1,
    "_scaled_dot_product_flash_attention_backward": 2,
    "_scaled_dot_product_cudnn_attention": 1,
    "_scaled_dot_product_cudnn_attention_backward": 2,
    "_scaled_dot_product_efficient_attention": 1,
    "_scaled_dot_product_efficient_attention_backward": 2,
}
"""Attention operators, and the number of forward passes that each counts for. A backward pass counts as two and has the
gradient as its first argument."""

OPTIMIZER = {"_fused_adam_", "_fused_adamw_"}
REDUCTIONS = {
    "sum",
    "mean",
    "amax",
    "amin",
    "aminmax",
    "max",
    "min",
    "argmax",
    "norm",
    "linalg_vector_norm",
    "_foreach_norm",
    "native_layer_norm",
    "native_layer_norm_backward",
    "_fused_rms_norm",
    "_fused_rms_norm_backward",
    "logsumexp",
    "_softmax",
    "_log_softmax",
    "cumsum",
}
"""Operators that add up or compare values along an axis."""
COPIES = {
    "copy_",
    "_foreach_copy_",
    "clone",
    "contiguous",
    "_to_copy",
    "cat",
    "stack",
}
NO_KERNEL = {
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "lift_fresh",
    "resize_",
    "set_",
    "detach_",
    "is_pinned",
    "_has_compatible_shallow_copy_type",
}
"""Operators that only allocate or keep books; views are recognised by their schema."""
ONLY_WRITTEN = {"zero_", "fill_", "copy_", "_foreach_zero_", "_foreach_copy_"}
"""In-place operators that overwrite their target without reading it."""
BY_ROWS = {"embedding", "gather", "index_select", "index", "scatter_add_", "scatter_", "index_put_", "index_add_"}
"""Operators that touch as much of a table as their indices name, not all of it."""


@dataclass(frozen=True)
class MatmulShape:
    """Shape of ``batch`` matrix products of [m, k] and [k, n]."""

    m: int
    n: int
    k: int
    batch: int
    dtype: str
    out_dtype: str

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k


@dataclass(frozen=True)
class AttentionShape:
    """Shape of causal attention; ``passes`` is 1 forward and 2 backward. The whole S x S square is counted."""

    kernel: str
    passes: int
    batch: int
    heads: int
    queries: int
    keys: int
    head_size: int
    dtype: str

    @property
    def flops(self) -> int:
        """FLOPs of scores and values, 2 for each multiplication."""
        return self.passes * 4 * self.batch * self.heads * self.queries * self.keys * self.head_size


@cache
def kind_of(function: Any) -> OperatorKind | None:
    """Return the kind of kernel that an operator runs; None for views, allocations and bookkeeping, which run no
    kernel."""
    name = plain_name(function)
    if function.namespace == "c10d":
        return "collective"
    if function.namespace in ("prim", "prims", "_dtensor") or name in NO_KERNEL or function.is_view:
        return None
    tables: Sequence[tuple[Iterable[str], OperatorKind]] = (
        (MATMULS, "matmul"),
        (ATTENTION, "attention"),
        (OPTIMIZER, "optimizer"),
        (REDUCTIONS, "reduction"),
        (COPIES, "copy"),
    )
    return next((kind for names, kind in tables if name in names), "elementwise")


@cache
def plain_name(function: Any) -> str:
    """Return the name of an operator without namespace and overload."""
    return str(function._schema.name.split("::")[1])


def matmul_shape(function: Any, args: Sequence[Any], result: Tensor) -> MatmulShape:
    first, second = (args[position] for position in MATMULS[plain_name(function)])
    m, k = first.shape[-2:]
    batch = first.shape[0] if first.dim() == 3 else 1
    return MatmulShape(m, second.shape[-1], k, batch, _short(first.dtype), _short(result.dtype))


def attention_shape(function: Any, args: Sequence[Any]) -> AttentionShape:
    name = plain_name(function)
    passes = ATTENTION[name]
    query, key = args[1:3] if passes == 2 else args[:2]
    batch, heads, queries, size = query.shape
    return AttentionShape(
        name.removeprefix("_scaled_dot_product_").removesuffix("_backward"),
        passes,
        batch,
        heads,
        queries,
        key.shape[2],
        size,
        _short(query.dtype),
    )


def bytes_moved(function: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> int:
    """Return the bytes that the operator reads and writes; each tensor counts once for reading and once for writing."""
    if plain_name(function) in BY_ROWS:
        return _by_rows(args, kwargs, result)
    names, reads, changes = _arguments(function)
    by_name = dict(zip(names, args, strict=False)) | kwargs
    outputs = tensors_in(result) or tensors_in([by_name.get(name) for name in changes])
    inputs = tensors_in([by_name.get(name) for name in reads])
    return sum(map(size_in_memory, inputs)) + sum(map(size_in_memory, outputs))


def tensors_in(tree: Any) -> list[Tensor]:
    """Return the tensors in lists, tuples and dictionaries of any depth, in order."""
    if isinstance(tree, Tensor):
        return [tree]
    tensors: list[Tensor] = []
    if isinstance(tree, (list, tuple, dict)):
        _add_tensors(tree, tensors)
    return tensors


def _add_tensors(tree: Any, tensors: list[Tensor]) -> None:
    for branch in tree.values() if isinstance(tree, dict) else tree:
        if isinstance(branch, Tensor):
            tensors.append(branch)
        elif isinstance(branch, (list, tuple, dict)):
            _add_tensors(branch, tensors)


def size_in_memory(tensor: Tensor) -> int:
    """Return the bytes of a tensor; values repeated along an axis count once."""
    if tensor.is_contiguous():
        return tensor.numel() * tensor.element_size()
    distinct = math.prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return distinct * tensor.element_size()


@cache
def _arguments(function: Any) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the names of the arguments: all of them, those that are read, and those that are changed."""
    only_written = plain_name(function) in ONLY_WRITTEN
    names, reads, changes = [], [], []
    for position, argument in enumerate(function._schema.arguments):
        names.append(argument.name)
        changed = argument.alias_info is not None and argument.alias_info.is_write
        if not (changed and (argument.kwarg_only or (only_written and position == 0))):
            reads.append(argument.name)
        if changed and argument.name not in ("grads", "state_steps"):  # fused Adam may, and does not
            changes.append(argument.name)
    return tuple(names), tuple(reads), tuple(changes)


def _by_rows(args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> int:
    """Return the bytes of an operator in ``BY_ROWS``: the indices read, the rows read and written, and the rows of
    another tensor that are put into them."""
    tensors = tensors_in((args[1:], kwargs))
    indices = [tensor for tensor in tensors if not tensor.is_floating_point()]
    sources = [tensor for tensor in tensors if tensor.is_floating_point()]
    rows = sources[0] if sources else result
    return sum(map(size_in_memory, indices)) + size_in_memory(rows) * (3 if sources else 2)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
