"""Tensors that pretend to be on a GPU: shapes without values, made as PyTorch's fake mode makes them, and sooner.

What it needs of PyTorch beyond its public interface is here, in fake_gpu.py, remembered_results.py and fake_world.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    _CacheKeyState,
    _DispatchCacheKey,
    in_kernel_invocation_manager,
)

from benchmark.planning.fake.host_waits import AS_SEEN_BY_CPP, GPU
from benchmark.planning.fake.operator_costs import tensors_in
from benchmark.planning.fake.remembered_results import Question, RememberedResults

_aten: Any = torch.ops.aten
ASKS_FOR_DEVICE = torch.ops.prim.device.default
PRODUCTS_INTO_OTHER_PRECISION: dict[Any, tuple[int, int]] = {
    _aten.mm.dtype: (0, 1),
    _aten.mm.dtype_out: (0, 1),
    _aten.addmm.dtype: (1, 2),
    _aten.addmm.dtype_out: (1, 2),
}
"""Matrix products that only CUDA has, whose shapes PyTorch does not work out everywhere (2.11: addmm); the arguments
that are multiplied. The precision follows them or the result, as do ``beta`` and ``alpha``."""


class FakeGpuTensors(FakeTensorMode):  # type: ignore[no-untyped-call]
    """Inside it, tensors have shapes and no values; those on the meta device stay as they are."""

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.memory = RememberedResults(self)

    @property
    def avoid_device_init(self) -> bool:
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, so there is nothing that the compiler would have to be kept from."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return self.dispatch(func, types, args, kwargs)

    def dispatch(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is ASKS_FOR_DEVICE:
            seen = device_as_seen_by_cpp(args[0])
            if seen is not None:
                return seen
        if kwargs.get("device") == AS_SEEN_BY_CPP:
            kwargs["device"] = GPU
        if func in PRODUCTS_INTO_OTHER_PRECISION:
            return self._product(func, types, args, kwargs)
        if func.namespace == "c10d":  # never found again: each has its own handle
            return self._collective(func, types, args, kwargs)
        made = super().dispatch(func, types, args, kwargs)
        if func.is_view and type(made) is list:
            question = self.memory.question(func, args, kwargs)
            if question is not None:
                self.memory.keep(question, func, args, made)
        return made

    def question(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Question | None:
        """All that the result of an operator depends on; None where that is not known."""
        if func.namespace != "aten":
            return None
        if kwargs.get("device") == AS_SEEN_BY_CPP:
            kwargs = {**kwargs, "device": GPU}
        return self.memory.question(func, args, kwargs)

    def _cache_key(
        self, state: _CacheKeyState, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> _DispatchCacheKey:
        """What a result depends on, by which PyTorch finds the one that it made before.

        PyTorch's own key takes each size and stride apart and asks ten questions about each. Whatever is not a strided
        tensor or a plain value goes that way still.
        """
        question = self.memory.question(func, args, kwargs)
        if question is None:
            return super()._cache_key(state, func, args, kwargs)
        return _DispatchCacheKey(("by fake_gpu", func, *question))  # kept longer than operators may live

    def _output_from_cache_entry(
        self, state: _CacheKeyState, entry: Any, key: _DispatchCacheKey, func: Any, args: Sequence[Any]
    ) -> Any:
        result = super()._output_from_cache_entry(state, entry, key, func, args)
        found = FakeTensorMode.cache.get(key) is entry  # it also tries entries that it is about to keep
        if found and key.key[0] == "by fake_gpu" and func.namespace == "aten":
            self.memory.keep(key.key[2:], func, args, result)
        return result

    def _collective(self, func: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """It changes none of its tensors' shapes, and gives back its own: nothing to work out."""
        if not all(type(tensor) is FakeTensor and tensor.fake_mode is self for tensor in tensors_in((args, kwargs))):
            return self._dispatch_impl(func, types, args, kwargs)
        with in_kernel_invocation_manager(self):
            return func(*args, **kwargs)

    def _product(self, func: Any, types: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        first, second = (args[place] for place in PRODUCTS_INTO_OTHER_PRECISION[func])
        out: Tensor | None = kwargs.get("out")
        multiplies = first.dtype == second.dtype and first.shape[1] == second.shape[0]
        if out is not None and multiplies and out.shape == (first.shape[0], second.shape[1]):
            return out  # as most of a step's do: not worth asking PyTorch
        product: Any = super().dispatch(_aten.mm.default, types, (first, second), {})
        if out is not None:
            if out.shape != product.shape:
                raise RuntimeError(f"{func}: product of {tuple(product.shape)} into {tuple(out.shape)}")
            return out
        dtype = next(arg for arg in (*args, *kwargs.values()) if isinstance(arg, torch.dtype))
        empty: Any = super().dispatch(_aten.empty_like.default, types, (product,), {"dtype": dtype})
        return empty


def device_as_seen_by_cpp(tensor: Any) -> torch.device | None:
    """What C++ code is told; None where PyTorch answers for itself. Asked several times for each operation."""
    if not isinstance(tensor, FakeTensor) or tensor.fake_mode.in_kernel_invocation:
        return None
    return AS_SEEN_BY_CPP if tensor.fake_device.type == "cuda" else tensor.fake_device
