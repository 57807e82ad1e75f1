"""The one stream of a fake device, and the work that is queued on it beside each collective.

A collective begins when it is called and is waited for where the stream needs its result. Work queued in between can
hide the collective. The order has no times; the plan computes them.
"""

import itertools
import weakref
from collections.abc import Callable
from typing import Any

from benchmark.planning.fake_device.device_rules import UnknownQuestion


class FakeStream:
    """The stream that PyTorch gets from the fake device. The training code makes no other stream and no event."""

    def is_capturing(self) -> bool:
        """Return False: PyTorch's optimizer asks for CUDA graphs from version 2.13 on."""
        return False

    def __getattr__(self, name: str) -> Any:
        raise UnknownQuestion(f"{name} of a stream")


class StreamOrder:
    """The order of products and collectives on the stream."""

    def __init__(self) -> None:
        self.queued_flops = 0
        """FLOPs queued so far."""
        self._numbers = itertools.count()
        self._launched: dict[int, tuple[Callable[[int], None], int]] = {}
        self._by_work: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()
        self._without_work: list[int] = []

    def queue(self, flops: int) -> None:
        """Queue a matrix product or attention."""
        self.queued_flops += flops

    def launch(self, waited: Callable[[int], None]) -> None:
        """Begin a collective. ``waited`` is called with the FLOPs that are queued until the stream waits for it."""
        number = next(self._numbers)
        self._launched[number] = waited, self.queued_flops
        self._without_work.append(number)

    def handed_out(self, work: Any) -> None:
        """Note that the caller got the handle ``work`` for the collectives begun since the last call."""
        if self._without_work:
            self._by_work[work] = self._without_work
            self._without_work = []

    def wait_for(self, work: Any) -> None:
        """Let the stream wait for ``work``."""
        for number in self._by_work.pop(work, ()):
            if number in self._launched:
                waited, flops_at_launch = self._launched.pop(number)
                waited(self.queued_flops - flops_at_launch)

    def forget(self) -> None:
        """Forget the collectives begun so far; nobody asks for them any more."""
        self._launched.clear()
