"""What an operator makes of tensors without values, made again without asking PyTorch's rules for shapes.

A step calls the same operators on the same shapes thousands of times, and many of PyTorch's rules for meta tensors are
Python code that takes up to a millisecond.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmark.planning.fake.fake_gpu import META, is_on_meta

PLAIN = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format})
"""Types of arguments that are what they say."""
TENSORS = frozenset({Tensor, torch.nn.Parameter})
Question = tuple[object, ...]
"""All that a result depends on."""


def question_of(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Question | None:
    """None where an argument is neither a tensor nor a plain value."""
    parts: list[object] = [id(function), torch.get_default_dtype(), torch.is_inference_mode_enabled()]
    described = _described(parts, args) and (not kwargs or _described(parts, kwargs.items()))
    return tuple(parts) if described else None


def _described(parts: list[object], values: Iterable[Any]) -> bool:
    """Adds to ``parts`` what tells the values apart; False where one is of another kind."""
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


@dataclass(frozen=True, slots=True)
class RememberedTensor:
    """A result with memory of its own."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class RememberedResult:
    """How to make the results of an operator: new tensors, places of arguments that it gives back, numbers."""

    kind: type | None
    """Tuple or list where there are several results."""
    parts: tuple[RememberedTensor | int | tuple[int | None], ...]
    """A number stands in a tuple of its own, a place by itself."""

    def make(self, given: Sequence[Any]) -> tuple[Any, list[Tensor]]:
        """The result from all arguments, and the tensors in it that have memory of their own."""
        made: list[Any] = []
        new = []
        for part in self.parts:
            if type(part) is RememberedTensor:
                tensor = torch.empty_strided(part.shape, part.stride, dtype=part.dtype, device=META)
                new.append(tensor)
                made.append(tensor)
            else:
                made.append(part[0] if isinstance(part, tuple) else given[part])  # type: ignore[index]
        return (made[0] if self.kind is None else self.kind(made)), new


def remembered(given: Sequence[Any], result: Any) -> RememberedResult | None:
    """``given``: all arguments; ``result``: of an operator that makes the same whenever it is asked the same. None
    where it has values, as on the host, a gradient, or is a view."""
    kind = type(result) if type(result) in (tuple, list) else None
    results = [result] if kind is None else result
    tensors = [each for each in results if isinstance(each, Tensor)]
    if not tensors or not all(type(each) in TENSORS and is_on_meta(each) for each in tensors):
        return None
    places = {id(argument): place for place, argument in enumerate(given)}
    storages = {argument.untyped_storage()._cdata for argument in given if isinstance(argument, Tensor)}
    parts: list[RememberedTensor | int | tuple[int | None]] = []
    for each in results:
        if id(each) in places and isinstance(each, Tensor):
            parts.append(places[id(each)])
        elif each is None or type(each) is int:
            parts.append((each,))
        else:
            special = not isinstance(each, Tensor) or each.requires_grad or each.is_inference() or each.is_conj()
            if special or each.untyped_storage()._cdata in storages:
                return None
            parts.append(RememberedTensor(tuple(each.shape), tuple(each.stride()), each.dtype))
    return RememberedResult(kind, tuple(parts))
