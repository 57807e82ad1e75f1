"""The messages between a pipeline's ranks: hidden states to the next rank, gradients to the previous one."""

from collections.abc import Callable, Sequence

import torch.distributed as dist
from torch import Tensor

from benchmark.training.engine.pipeline_order import PipelineShape, Slot
from model.passes.waits import pipeline_exchange


class ArrivingMessage:
    """A message on its way."""

    def __init__(
        self, buffer: Tensor | None = None, works: Sequence[dist.Work] = (), outgoing: Tensor | None = None
    ) -> None:
        """``outgoing``: the tensor that is sent with it, which must live until then."""
        self._buffer, self._works, self._outgoing = buffer, works, outgoing

    def wait(self) -> Tensor | None:
        """Wait for the message and return it; None if this slot receives none."""
        pipeline_exchange(self._works)
        self._works, self._outgoing = (), None
        buffer, self._buffer = self._buffer, None
        return buffer


class DirectedMessages:
    """One direction of the pipeline: the message of a slot to one neighbour, and the other neighbour's message for the
    next slot."""

    def __init__(self, group: dist.ProcessGroup, to: int, sender: int, empty: Callable[[], Tensor]) -> None:
        self._group, self._to, self._sender, self._empty = group, to, sender, empty
        self.sends = self.receives = self.begun = False
        """True if this slot sends, if it receives for the next slot, and if both have begun."""
        self._outgoing: Tensor | None = None

    def expect(self, *, sends: bool, receives: bool) -> None:
        """Begin a slot."""
        self.sends, self.receives, self.begun, self._outgoing = sends, receives, False, None

    def store(self, outgoing: Tensor) -> None:
        """Store the slot's tensor until it is sent."""
        self._outgoing = outgoing.contiguous()

    @property
    def ready(self) -> bool:
        """True unless the slot's tensor is still to be computed."""
        return self.begun or not self.sends or self._outgoing is not None

    def begin(self) -> ArrivingMessage:
        """Begin to send and to receive; return the arriving message."""
        self.begun = True
        outgoing, self._outgoing = self._outgoing, None
        buffer = self._empty() if self.receives else None
        operations = []
        if outgoing is not None:
            operations.append(dist.P2POp(dist.isend, outgoing, self._to, self._group))
        if buffer is not None:
            operations.append(dist.P2POp(dist.irecv, buffer, self._sender, self._group))
        return ArrivingMessage(buffer, dist.batch_isend_irecv(operations) if operations else [], outgoing)


class Exchange:
    """A rank's messages with its neighbours in the pipeline: hidden states to the next rank, gradients to the previous.

    Each direction begins as soon as the slot has computed its tensor; the pass that needs a message waits for it. On
    all ranks hidden states begin first, in whatever order they were computed, so that no ranks wait in a circle.
    """

    def __init__(self, group: dist.ProcessGroup, shape: PipelineShape, empty: Callable[[], Tensor]) -> None:
        """``empty``: allocates the hidden state of a micro-batch."""
        ranks, self._shape = dist.get_process_group_ranks(group), shape
        following, previous = ranks[(shape.rank + 1) % shape.ranks], ranks[shape.rank - 1]
        self._on = DirectedMessages(group, following, previous, empty)
        self._back = DirectedMessages(group, previous, following, empty)
        self._arriving = ArrivingMessage(), ArrivingMessage()

    def begin(self, slot: Slot, following: Slot | None) -> None:
        """Begin ``slot``: its outputs will be sent, and the inputs of the ``following`` slot received."""
        shape, idle = self._shape, Slot(None, None)
        following = following or idle
        self._on.expect(
            sends=slot.forward is not None and not shape.is_last(slot.forward.chunk),
            receives=following.forward is not None and not shape.is_first(following.forward.chunk),
        )
        self._back.expect(
            sends=slot.backward is not None and not shape.is_first(slot.backward.chunk),
            receives=following.backward is not None and not shape.is_last(following.backward.chunk),
        )

    def send_on(self, out: Tensor) -> None:
        """Send the output of the slot's forward pass to the next rank."""
        self._on.store(out)
        self._begin_on()
        if self._back.ready:
            self._begin_back()

    def send_back(self, gradient: Tensor) -> None:
        """Send the gradient of the input of the slot's backward pass to the previous rank."""
        self._back.store(gradient)
        if self._on.ready:
            self._begin_back()

    def end_slot(self) -> tuple[ArrivingMessage, ArrivingMessage]:
        """Begin the directions that have nothing to send; return the next slot's input and gradient, on their way."""
        self._begin_back()
        arriving, self._arriving = self._arriving, (ArrivingMessage(), ArrivingMessage())
        return arriving

    def _begin_on(self) -> None:
        if not self._on.begun:
            self._arriving = self._on.begin(), self._arriving[1]

    def _begin_back(self) -> None:
        self._begin_on()
        if not self._back.begun:
            self._arriving = self._arriving[0], self._back.begin()
