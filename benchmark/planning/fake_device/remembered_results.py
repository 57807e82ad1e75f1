"""Remember the results of operators on tensors without values, and make them again without PyTorch's shape rules.

A step calls the same operators on the same shapes thousands of times, and many of PyTorch's rules for meta tensors are
Python code that takes up to a millisecond.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from benchmark.planning.fake_device.fake_gpu import META, is_on_meta

PLAIN = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format})
"""Types of arguments that describe themselves completely."""
TENSORS = frozenset({Tensor, torch.nn.Parameter})
Question = tuple[object, ...]
"""Everything that a result depends on."""
ResultRecipe = Callable[[Sequence[Any]], tuple[Any, list[Tensor]]]
"""Function from an operator's arguments to its result, and to the tensors in it that have memory of their own."""


def question_of(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Question | None:
    """Return the key of a call; None if an argument is neither a tensor nor a plain value."""
    parts: list[object] = [id(function), torch.get_default_dtype(), torch.is_inference_mode_enabled()]
    described = _described(parts, args) and (not kwargs or _described(parts, kwargs.items()))
    return tuple(parts) if described else None


def _described(parts: list[object], values: Iterable[Any]) -> bool:
    """Add a description of each value to ``parts``; return False if a value is of another kind."""
    for value in values:
        kind = type(value)
        if kind in PLAIN:
            parts += (kind, value)  # 1, 1.0 and True are equal, results of theirs are not
        elif kind in TENSORS:
            parts += (value.dtype, value.shape, value.stride(), is_on_meta(value), value.requires_grad)
        elif kind in (list, tuple):
            parts += (kind, len(value))
            if not _described(parts, value):
                return False
        else:
            return False
    return True


def remembered(arguments: Sequence[Any], result: Any) -> ResultRecipe | None:
    """Return the recipe for ``result``, for an operator whose results depend on its ``arguments`` alone.
    Return None if the result has values, as on the host, has a gradient, or is a view."""
    kind = type(result) if type(result) in (tuple, list) else None
    results = [result] if kind is None else result
    tensors = [item for item in results if isinstance(item, Tensor)]
    if not tensors or not all(type(item) in TENSORS and is_on_meta(item) for item in tensors):
        return None
    positions = {id(argument): position for position, argument in enumerate(arguments)}
    storages = {argument.untyped_storage()._cdata for argument in arguments if isinstance(argument, Tensor)}
    parts: list[Callable[[Sequence[Any]], Any]] = []
    fresh: list[int] = []
    for item in results:
        if id(item) in positions and isinstance(item, Tensor):
            parts.append(itemgetter(positions[id(item)]))
        elif item is None or type(item) is int:
            parts.append(partial(_constant, item))
        else:
            special = not isinstance(item, Tensor) or item.requires_grad or item.is_inference() or item.is_conj()
            if special or item.untyped_storage()._cdata in storages:
                return None
            fresh.append(len(parts))
            parts.append(partial(_new_tensor, tuple(item.shape), tuple(item.stride()), item.dtype))

    def make(arguments: Sequence[Any]) -> tuple[Any, list[Tensor]]:
        renewed = [part(arguments) for part in parts]
        return (renewed[0] if kind is None else kind(renewed)), [renewed[position] for position in fresh]

    return make


def _constant(value: int | None, _: Sequence[Any]) -> int | None:
    return value


def _new_tensor(shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, _: Sequence[Any]) -> Tensor:
    return torch.empty_strided(shape, stride, dtype=dtype, device=META)
