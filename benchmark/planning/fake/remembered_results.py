"""Remember the results of operators on tensors without values, and make them again without PyTorch's shape rules.

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
"""Types of arguments that describe themselves completely."""
TENSORS = frozenset({Tensor, torch.nn.Parameter})
Question = tuple[object, ...]
"""Everything that a result depends on."""


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


@dataclass(frozen=True, slots=True)
class RememberedTensor:
    """A resulting tensor with memory of its own."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class RememberedResult:
    """Recipe for the results of an operator: new tensors, positions of arguments that it returns, and numbers."""

    kind: type | None
    """Tuple or list if there are several results; None if there is one."""
    parts: tuple[RememberedTensor | int | tuple[int | None], ...]
    """Parts of the result. A position of an argument is an int; a number stands in a tuple of its own."""

    def make(self, given: Sequence[Any]) -> tuple[Any, list[Tensor]]:
        """Return the result for these arguments, and the tensors in it that have memory of their own."""
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
    """Return the recipe for ``result``, given all arguments of an operator that always makes the same from the same.
    Return None if the result has values, as on the host, has a gradient, or is a view."""
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
