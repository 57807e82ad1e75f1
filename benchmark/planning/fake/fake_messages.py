"""Messages of many tensors on PyTorch's fake process group, which has none: one collective for each tensor."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch.distributed as dist


class _Works:
    """Of several collectives that began as one message."""

    def __init__(self, works: Sequence[Any]) -> None:
        self._works = works

    def wait(self) -> None:
        for work in self._works:
            work.wait()


def _one_by_one(*names: str) -> Callable[..., Any]:
    """A collective of many tensors as many collectives, of which PyTorch's fake group has one for each tensor: by the
    first of ``names`` that there is."""

    def begin(group: dist.ProcessGroup, *tensors_and_options: Any) -> _Works:
        single = next(getattr(group, name) for name in names if hasattr(group, name))
        tensors = [argument for argument in tensors_and_options if isinstance(argument, list)]
        return _Works([single(*one) for one in zip(*tensors, strict=True)])

    return begin


_OF_MANY_TENSORS = {
    "allgather_into_tensor_coalesced": _one_by_one("all_gather_single", "_allgather_base"),
    "all_gather_single_coalesced": _one_by_one("all_gather_single", "_allgather_base"),
    "reduce_scatter_tensor_coalesced": _one_by_one("reduce_scatter_single", "_reduce_scatter_base"),
    "reduce_scatter_single_coalesced": _one_by_one("reduce_scatter_single", "_reduce_scatter_base"),
    "allreduce_coalesced": lambda group, tensors, *_: _Works([group.allreduce([tensor]) for tensor in tensors]),
}
"""Methods of a process group."""


@contextmanager
def messages_of_many_tensors() -> Iterator[None]:
    """They can be sent while it lasts."""
    with ExitStack() as stack:
        for attribute in _OF_MANY_TENSORS.keys() & set(dir(dist.ProcessGroup)):
            stack.enter_context(patch.object(dist.ProcessGroup, attribute, _OF_MANY_TENSORS[attribute]))
        yield
