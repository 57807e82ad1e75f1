"""Forward and backward passes over micro-batches, through a pipeline or, its shortest case, the whole model.

Losses are returned as this process's share: summed over all processes they are the loss of the global batch.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from benchmark.config.run_config import Precision
from benchmark.config.system_config import System
from benchmark.training.engine.distributed import World
from benchmark.training.engine.pipeline_order import (
    PipelineShape,
    ScheduledPass,
    Slot,
    evaluation_slots,
    training_slots,
)
from model.cpu_bf16 import Bf16ByFp32, cpu_has_bf16
from model.decoder_sizes import DecoderSizes
from model.passes import parameter_group
from model.passes.block_pass import ForwardWatch
from model.passes.chunk_pass import ChunkActivations, ChunkPass, MicroBatch
from model.passes.end_passes import sequence_first
from model.passes.tensor_group import Passing, TensorGroup, run_together, together
from model.passes.waits import pipeline_exchange


class Pipeline:
    """This process's parts of the model, one for each of its chunks, and the other ranks of its pipeline.

    See pipeline_order.py for what is done when, and model/passes/chunk_pass.py for how.
    """

    def __init__(
        self,
        model: DecoderSizes,
        system: System,
        precision: Precision,
        world: World,
        chunks: Sequence[Mapping[str, DTensor]],
    ) -> None:
        """``chunks``: the parameters of each part."""
        self.world = world
        self.micro_batch_losses = torch.zeros(0)
        """[micro-batches] of the last training step, each divided by their number; [0] where this process has none."""
        bf16 = precision == "bf16"
        slow_bf16 = bf16 and world.device.type == "cpu" and not cpu_has_bf16()
        self._context: AbstractContextManager[Any] = Bf16ByFp32() if slow_bf16 else nullcontext()
        """All passes run in it."""
        mesh = world.mesh["pipeline"]
        self._shape = PipelineShape(
            mesh.size(), mesh.get_local_rank(), system.pipeline_chunks, apart=system.tensor_parallel > 1
        )
        tensor = TensorGroup(world.mesh["tensor"], system.collectives.copy_engines)
        self._parts = [
            ChunkPass(
                parameters,
                model,
                tensor,
                bf16=bf16,
                batch=system.micro_batch_size,
                recompute=system.recompute,
                # In a pipeline a chunk's messages travel beside the passes of other chunks and ranks; several of them
                # would hold up its last backward pass, for whose gradients other ranks wait.
                least_weights=parameter_group.LEAST_WEIGHTS if mesh.size() == 1 else None,
            )
            for parameters in chunks
        ]
        self._groups = [group for part in self._parts for group in part.groups]
        """All groups of parameters, in the order in which a step needs them first."""
        for earlier, later in itertools.pairwise(self._groups):
            earlier.following = later
        rows = model.seq_length // system.tensor_parallel * system.micro_batch_size
        dtype = torch.bfloat16 if bf16 else torch.float32
        room = partial(torch.empty, dtype=dtype, device=world.device)
        group = mesh.get_group()
        self._exchange = Exchange(group, self._shape, partial(room, rows, model.hidden_size))
        # An evaluation has no backward passes whose work could hide a forward pass's collectives: two forward passes
        # do it for each other.
        self._evaluated_at_once = 2 if self._shape.apart else 1
        self._evaluation_exchange = Exchange(
            group, self._shape, partial(room, self._evaluated_at_once * rows, model.hidden_size)
        )

    def watch(self, watch: ForwardWatch) -> None:
        """Tell ``watch`` of the forward passes of all blocks from now on. Called once."""
        for part in self._parts:
            part.watch(watch)

    @torch.no_grad()
    def train(self, batches: Sequence[MicroBatch], number: int) -> Tensor:
        """Accumulate the gradient of the mean loss over ``number`` micro-batches, and return this process's share of
        that loss, a scalar. Processes that need no tokens are given none."""
        weight = 1 / (number * self.world.data_parallel)
        losses: list[Tensor] = []
        kept: dict[ScheduledPass, ChunkActivations] = {}

        def forward(turn: ScheduledPass, x: Arriving) -> Passing[None]:
            batch = self._needed_of(turn, lambda: batches[turn.micro_batch])
            out, kept[turn] = yield from self._parts[turn.chunk].forward_to_train(x.wait(), batch, weight)
            if self._shape.is_last(turn.chunk):
                losses.append(out)
            else:
                self._exchange.send_on(out)

        def backward(turn: ScheduledPass, gradient: Arriving) -> Passing[None]:
            part = self._parts[turn.chunk]
            last = turn.micro_batch == number - 1
            yield from part.backward(kept.pop(turn), gradient.wait(), self._exchange.send_back, last=last)

        self._run(training_slots(self._shape, number), forward, backward, self._exchange)
        self._end_reduce()
        share = torch.stack(losses) if losses else torch.zeros(0, device=self.world.device)
        self.micro_batch_losses = share * self.world.data_parallel
        return share.sum() / self.world.loss_copies

    @torch.no_grad()
    def evaluate(self, batches: Iterable[MicroBatch], number: int) -> Tensor:
        """This process's share of the sum of the losses that count, and of their number: [2], float64.

        ``number`` of batches, the same on all processes; those that need no tokens read none.
        """
        total = torch.zeros(2, dtype=torch.float64, device=self.world.device)
        in_order = iter(batches)  # no rank has both ends of a pipeline: those that read read each batch once
        at_once = self._evaluated_at_once

        def forward(turn: ScheduledPass, arriving: Arriving) -> Passing[None]:
            first = turn.micro_batch * at_once
            count = min(at_once, number - first)
            own = [self._needed_of(turn, lambda: next(in_order)) for _ in range(count)]
            x = arriving.wait()
            given = [None] * count if x is None else x.chunk(at_once)[:count]
            part = self._parts[turn.chunk]
            outs = yield from together(*(part.forward(one, batch) for one, batch in zip(given, own, strict=True)))
            if not self._shape.is_last(turn.chunk):
                self._evaluation_exchange.send_on(torch.cat([*outs, *outs][:at_once]))  # where one is missing, filled
                return
            for out, batch in zip(outs, own, strict=True):
                assert batch is not None
                mask_T = sequence_first(batch.loss_mask)
                total.add_(torch.stack([(out * mask_T).sum(), mask_T.sum()]))

        turns = -(-number // at_once)
        self._run(evaluation_slots(self._shape, turns), forward, None, self._evaluation_exchange)
        return total / self.world.loss_copies

    def _run(
        self,
        slots: list[Slot],
        forward: Callable[[ScheduledPass, "Arriving"], Passing[None]],
        backward: Callable[[ScheduledPass, "Arriving"], Passing[None]] | None,
        exchange: "Exchange",
    ) -> None:
        self._parts[0].begin_gather()
        with self._context:
            exchange.begin(Slot(None, None), slots[0])
            for slot, following in itertools.pairwise([*slots, None]):
                assert slot is not None
                x, gradient = exchange.slot_ends()
                exchange.begin(slot, following)
                passes = []
                if slot.forward is not None:
                    passes.append(forward(slot.forward, x))
                if slot.backward is not None and backward is not None:
                    passes.append(backward(slot.backward, gradient))
                for at_once in [passes] if self._shape.apart else [[one] for one in passes]:
                    run_together(*at_once)
                for arriving in (x, gradient):
                    arriving.wait()  # of a slot without that pass: what was sent beside it
            for arriving in exchange.slot_ends():
                arriving.wait()

    def _end_reduce(self) -> None:
        for group in reversed(self._groups):
            group.begin_reduce_replicas()
        for group in reversed(self._groups):
            group.end_reduce()

    def _needed_of(self, turn: ScheduledPass, batch: Callable[[], MicroBatch]) -> MicroBatch | None:
        """Return a micro-batch on the device, for a chunk with an end of the model; None for others."""
        if self._shape.is_first(turn.chunk) or self._shape.is_last(turn.chunk):
            return batch().to(self.world.device)
        return None


class Messages:
    """One way through the pipeline: what a slot sends to a neighbour, and what comes from the other for the next."""

    def __init__(self, group: dist.ProcessGroup, to: int, sender: int, empty: Callable[[], Tensor]) -> None:
        self._group, self._to, self._sender, self._empty = group, to, sender, empty
        self.sends = self.receives = self.begun = False
        """Return True if the slot at hand will send, receives for the next slot, and has begun both."""
        self._own: Tensor | None = None
        """To be sent."""

    def expect(self, *, sends: bool, receives: bool) -> None:
        """A slot begins."""
        self.sends, self.receives, self.begun, self._own = sends, receives, False, None

    def put(self, own: Tensor) -> None:
        self._own = own.contiguous()

    @property
    def ready(self) -> bool:
        """Nothing that is to be sent is missing."""
        return self.begun or not self.sends or self._own is not None

    def begin(self) -> "Arriving":
        """Send and receive; returns what will arrive."""
        self.begun = True
        own, self._own = self._own, None
        room = self._empty() if self.receives else None
        operations = []
        if own is not None:
            operations.append(dist.P2POp(dist.isend, own, self._to, self._group))
        if room is not None:
            operations.append(dist.P2POp(dist.irecv, room, self._sender, self._group))
        return Arriving(room, dist.batch_isend_irecv(operations) if operations else [], own)


class Arriving:
    """A message on its way."""

    def __init__(self, room: Tensor | None = None, works: Sequence[dist.Work] = (), sent: Tensor | None = None) -> None:
        """``sent``: beside it, to be kept until it is."""
        self._room, self._works, self._sent = room, works, sent

    def wait(self) -> Tensor | None:
        """Return the message, once it is there; None where none is to come."""
        pipeline_exchange(self._works)
        self._works, self._sent = (), None
        room, self._room = self._room, None
        return room


class Exchange:
    """A rank's messages to and from its neighbours in the pipeline: hidden states one way, gradients the other.

    Each way begins as soon as the slot has made what is sent, and is waited for by the pass that needs it. Hidden
    states begin first on all ranks, whichever is made first, so that ranks never wait for each other in a circle.
    """

    def __init__(self, group: dist.ProcessGroup, shape: PipelineShape, empty: Callable[[], Tensor]) -> None:
        """``empty``: makes room for the hidden state of a micro-batch."""
        ranks, self._shape = dist.get_process_group_ranks(group), shape
        following, before = ranks[(shape.rank + 1) % shape.ranks], ranks[shape.rank - 1]
        self._on, self._back = Messages(group, following, before, empty), Messages(group, before, following, empty)
        self._arriving = Arriving(), Arriving()

    def begin(self, slot: Slot, following: Slot | None) -> None:
        """``slot`` begins, whose outputs are to be sent, and what ``following`` needs is to be received."""
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
        """The output of the slot's forward pass, for the next rank."""
        self._on.put(out)
        self._begin_on()
        if self._back.ready:
            self._begin_back()

    def send_back(self, gradient: Tensor) -> None:
        """The gradient of the input of the slot's backward pass, for the rank before."""
        self._back.put(gradient)
        if self._on.ready:
            self._begin_back()

    def slot_ends(self) -> tuple[Arriving, Arriving]:
        """Begin what was not begun for want of anything to send; what arrives for the next slot: input, gradient."""
        self._begin_back()
        arriving, self._arriving = self._arriving, (Arriving(), Arriving())
        return arriving

    def _begin_on(self) -> None:
        if not self._on.begun:
            self._arriving = self._on.begin(), self._arriving[1]

    def _begin_back(self) -> None:
        self._begin_on()
        if not self._back.begun:
            self._arriving = self._arriving[0], self._back.begin()
