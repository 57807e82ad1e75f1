"""What an operator makes of tensors that have no values, made again without asking PyTorch's rules for shapes again.

A step calls the same operators on the same shapes thousands of times. PyTorch's fake mode remembers results too, but
takes a tenth of a millisecond to find one and to make its tensor, half of a dry run. What may be remembered is
left to PyTorch: only results that it found in its own memory are made here, and lists of views, which it leaves out.

What it needs of PyTorch beyond its public interface is here, in fake_gpu_tensors.py, fake_gpu.py and fake_world.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

PLAIN = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format})
"""Types of arguments that are what they say."""
Question = tuple[object, ...]
"""All that a result depends on."""


@dataclass(frozen=True, slots=True)
class ResultRecipe:
    """How to make one result: an argument itself, a plain value, a view of an argument, or a tensor of its own."""

    itself: int | None = None
    """Place of the argument that an operator in place gives back."""
    value: int | None = None
    view_of: int | None = None
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    offset: int = 0
    dtype: torch.dtype = torch.float32
    device: torch.device | None = None
    """That it pretends to be on."""
    attributes: Mapping[str, Any] | None = None
    """What PyTorch's fake tensors remember in Python: their mode, their device, under a name that its version chose."""

    @property
    def is_new(self) -> bool:
        """Whether the result has memory of its own."""
        return self.attributes is not None and self.view_of is None

    def make(self, args: Sequence[Any]) -> Any:
        if self.attributes is None:
            return self.value if self.itself is None else args[self.itself]
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            meta = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="meta")
            if self.view_of is not None:
                meta.set_(args[self.view_of].untyped_storage(), self.offset, self.shape, self.stride)
            made = Tensor._make_subclass(
                FakeTensor, meta, False, dispatch_device=True, device_for_backend_keys=self.device
            )
        torch._C._set_throw_on_mutable_data_ptr(made)
        vars(made).update(self.attributes)
        return made


class RememberedResults:
    """Of one fake mode."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        self._kept: dict[Question, tuple[type | None, list[ResultRecipe]]] = {}
        """Tuple or list where there are several results."""

    def question(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Question | None:
        """None where an argument is neither a strided tensor of this mode nor a plain value."""
        parts: list[object] = [id(function), torch.get_default_dtype(), torch.is_inference_mode_enabled()]
        described = self._described(parts, args) and (not kwargs or self._described(parts, kwargs.items()))
        return tuple(parts) if described else None

    def knows(self, question: Question) -> bool:
        """Whether there is a result."""
        return question in self._kept

    def answer(self, question: Question, args: Sequence[Any]) -> tuple[Any, list[Tensor]]:
        """The result, which is known, and the tensors in it that have memory of their own."""
        kind, recipes = self._kept[question]
        made = [recipe.make(args) for recipe in recipes]
        new = [one for one, recipe in zip(made, recipes, strict=True) if recipe.is_new]
        return (made[0] if kind is None else kind(made)), new

    def keep(self, question: Question, function: Any, args: Sequence[Any], result: Any) -> None:
        """``result``: of an operator that makes the same whenever it is asked the same."""
        kind = type(result) if type(result) in (tuple, list) else None
        recipes = [_recipe(function, args, each) for each in ([result] if kind is None else result)]
        known = [each for each in recipes if each is not None]
        if len(known) == len(recipes):
            self._kept[question] = kind, known

    def _described(self, parts: list[object], values: Iterable[Any]) -> bool:
        """Adds to ``parts`` what tells the values apart; False where one is of another kind."""
        for value in values:
            kind = type(value)
            if kind in PLAIN:
                parts += (kind, value)  # 1, 1.0 and True are equal, results of theirs are not
            elif kind is FakeTensor:
                if value.fake_mode is not self._mode or value.constant is not None:
                    return False
                if value.layout is not torch.strided:
                    return False
                parts += (
                    kind,
                    value.dtype,
                    value.shape,
                    value.stride(),
                    value.storage_offset(),
                    value.untyped_storage().nbytes(),
                    value.fake_device,
                    value.requires_grad,
                    torch._C._dispatch_keys(value).raw_repr(),  # conjugates, negatives, inference
                )
            elif kind in (list, tuple):
                parts += (kind, len(value))
                if not self._described(parts, value):
                    return False
            else:
                return False
        return True


def _recipe(function: Any, args: Sequence[Any], result: Any) -> ResultRecipe | None:
    """None for what is neither a plain strided tensor without gradient nor a number or nothing."""
    if result is None or type(result) is int:
        return ResultRecipe(value=result)
    if type(result) is not FakeTensor or result.layout is not torch.strided:
        return None
    if result.requires_grad or result.is_conj() or result.is_neg() or result.constant is not None:
        return None
    itself = next((place for place, given in enumerate(args) if given is result), None)
    if itself is not None:
        return ResultRecipe(itself=itself)
    tensors = [place for place, given in enumerate(args) if isinstance(given, Tensor)]
    if function.is_view and len(tensors) != 1:
        return None
    return ResultRecipe(
        view_of=tensors[0] if function.is_view else None,
        shape=tuple(result.shape),
        stride=tuple(result.stride()),
        offset=int(result.storage_offset()),
        dtype=result.dtype,
        device=result.fake_device,
        attributes=dict(vars(result)),
    )
