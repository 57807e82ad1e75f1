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

from benchmark.config.run_config import RunConfig
from benchmark.training.engine.distributed import World
from benchmark.training.engine.micro_batches import MicroBatch
from benchmark.training.engine.pipeline_order import PipelineShape, Slot, Turn, evaluation_slots, training_slots
from model.cpu_bf16 import Bf16ByFp32, cpu_has_bf16
from model.passes.end_passes import sequence_first
from model.passes.part_pass import KeptPart, PartBatch, PartPass
from model.passes.tensor_group import ForwardWatch, Passing, run_together, together
from model.passes.waits import pipeline_exchange


class Pipeline:
    """This process's parts of the model, one for each of its chunks, and the other ranks of its pipeline.

    See pipeline_order.py for what is done when, and model/passes/part_pass.py for how.
    """

    def __init__(self, config: RunConfig, world: World, chunks: Sequence[Mapping[str, DTensor]]) -> None:
        """``chunks``: the parameters of each part."""
        self.world = world
        self.micro_batch_losses = torch.zeros(0)
        """[micro-batches] of the last training step, each divided by their number; [0] where this process has none."""
        system, model = config.system, config.benchmark.model
        slow_bf16 = config.precision == "bf16" and world.device.type == "cpu" and not cpu_has_bf16()
        self._context: AbstractContextManager[Any] = Bf16ByFp32() if slow_bf16 else nullcontext()
        """All passes run in it."""
        mesh = world.mesh["pipeline"]
        self._shape = PipelineShape(
            mesh.size(), mesh.get_local_rank(), system.pipeline_chunks, apart=system.tensor_parallel > 1
        )
        self._parts = [
            PartPass(
                parameters,
                model,
                world.mesh["tensor"],
                bf16=config.precision == "bf16",
                batch=system.micro_batch_size,
                recompute=system.recompute,
            )
            for parameters in chunks
        ]
        rows = model.seq_length // system.tensor_parallel * system.micro_batch_size
        dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
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
        kept: dict[Turn, KeptPart] = {}

        def forward(turn: Turn, x: Tensor | None) -> Passing[None]:
            batch = self._needed_of(turn, lambda: batches[turn.micro_batch])
            out, kept[turn] = yield from self._parts[turn.chunk].forward_to_train(x, batch, weight)
            if self._shape.is_last(turn.chunk):
                losses.append(out)
            else:
                self._exchange.send_on(out)

        def backward(turn: Turn, gradient: Tensor | None) -> Passing[None]:
            part = self._parts[turn.chunk]
            yield from part.backward(kept.pop(turn), gradient, self._exchange.send_back)
            if turn.micro_batch == number - 1:
                part.parameters.begin_reduce()

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

        def forward(turn: Turn, x: Tensor | None) -> Passing[None]:
            first = turn.micro_batch * at_once
            count = min(at_once, number - first)
            own = [self._needed_of(turn, lambda: next(in_order)) for _ in range(count)]
            given = [None] * count if x is None else x.chunk(at_once)[:count]
            part = self._parts[turn.chunk]
            outs = yield from together(*(part.forward(one, batch) for one, batch in zip(given, own, strict=True)))
            if not self._shape.is_last(turn.chunk):
                self._evaluation_exchange.send_on(torch.cat([*outs, *outs][:at_once]))  # where one is missing, filled
                return
            for out, batch in zip(outs, own, strict=True):
                assert batch.mask_BS is not None
                mask_T = sequence_first(batch.mask_BS)
                total.add_(torch.stack([(out * mask_T).sum(), mask_T.sum()]))

        turns = -(-number // at_once)
        self._run(evaluation_slots(self._shape, turns), forward, None, self._evaluation_exchange)
        return total / self.world.loss_copies

    def _run(
        self,
        slots: list[Slot],
        forward: Callable[[Turn, Tensor | None], Passing[None]],
        backward: Callable[[Turn, Tensor | None], Passing[None]] | None,
        exchange: "Exchange",
    ) -> None:
        self._parts[0].begin_gather()
        with self._context:
            exchange.begin(None, slots[0])
            for slot, following in itertools.pairwise([*slots, None]):
                assert slot is not None
                x, gradient = exchange.received()
                exchange.begin(slot, following)
                passes = []
                if slot.forward is not None:
                    self._gather_next(slot.forward)
                    passes.append(forward(slot.forward, x))
                if slot.backward is not None and backward is not None:
                    passes.append(backward(slot.backward, gradient))
                del x, gradient
                for at_once in [passes] if self._shape.apart else [[one] for one in passes]:
                    run_together(*at_once)
                exchange.slot_ends()
            exchange.received()

    def _end_reduce(self) -> None:
        for part in self._parts:
            part.parameters.begin_reduce_replicas()
        for part in self._parts:
            part.parameters.end_reduce()

    def _gather_next(self, turn: Turn) -> None:
        """A chunk's first forward pass of a step begins: the next one's values are to be there when it comes."""
        if turn.micro_batch == 0 and turn.chunk + 1 < len(self._parts):
            self._parts[turn.chunk + 1].begin_gather()

    def _needed_of(self, turn: Turn, batch: Callable[[], MicroBatch]) -> PartBatch:
        """What a chunk needs of a micro-batch, on the device. Nothing is read for a chunk that needs nothing."""
        is_first, is_last = self._shape.is_first(turn.chunk), self._shape.is_last(turn.chunk)
        if not (is_first or is_last):
            return PartBatch()
        own = batch()
        to = partial(torch.Tensor.to, device=self.world.device, non_blocking=True)
        return PartBatch(
            to(own.tokens) if is_first else None,
            to(own.labels) if is_last else None,
            to(own.loss_mask) if is_last else None,
        )


class Exchange:
    """What a rank sends to its neighbours in the pipeline and receives from them between two slots, all at once.

    It begins as soon as the slot has made all that is sent, and is waited for before the next slot.
    """

    def __init__(self, group: dist.ProcessGroup, shape: PipelineShape, empty: Callable[[], Tensor]) -> None:
        """``empty``: makes room for the hidden state of a micro-batch."""
        self._group, self._shape, self._empty = group, shape, empty
        ranks = dist.get_process_group_ranks(group)
        self._next = ranks[(shape.rank + 1) % shape.ranks]
        self._previous = ranks[shape.rank - 1]
        self._sends: dict[int, Tensor] = {}
        self._expected = 0
        self._receives: tuple[bool, bool] = (False, False)
        self._works: list[dist.Work] | None = None
        self._received: tuple[Tensor | None, Tensor | None] = (None, None)

    def begin(self, slot: Slot | None, following: Slot | None) -> None:
        """A slot begins, whose outputs are to be sent, and what ``following`` needs is to be received."""
        shape = self._shape
        self._receives = (
            following is not None and following.forward is not None and not shape.is_first(following.forward.chunk),
            following is not None and following.backward is not None and not shape.is_last(following.backward.chunk),
        )
        self._expected = 0
        if slot is None:
            self._launch()
            return
        self._expected += slot.forward is not None and not shape.is_last(slot.forward.chunk)
        self._expected += slot.backward is not None and not shape.is_first(slot.backward.chunk)

    def send_on(self, out: Tensor) -> None:
        """The output of the slot's forward pass, for the next rank."""
        self._put(0, out)

    def send_back(self, gradient: Tensor) -> None:
        """The gradient of the input of the slot's backward pass, for the rank before."""
        self._put(1, gradient)

    def slot_ends(self) -> None:
        """Begin what was not begun for want of anything to send."""
        if self._works is None:
            self._launch()

    def received(self) -> tuple[Tensor | None, Tensor | None]:
        """Input and gradient for the next slot, once they are there; None where it needs none."""
        pipeline_exchange(self._works or ())
        self._works = None
        self._sends.clear()
        received, self._received = self._received, (None, None)
        return received

    def _put(self, kind: int, tensor: Tensor) -> None:
        self._sends[kind] = tensor.contiguous()
        if len(self._sends) == self._expected:
            self._launch()

    def _launch(self) -> None:
        """Between two ranks, what is sent on comes before what is sent back, on both sides."""
        receives_x, receives_gradient = self._receives
        x = self._empty() if receives_x else None
        gradient = self._empty() if receives_gradient else None
        self._received = x, gradient
        operations = []
        for kind, to in ((0, self._next), (1, self._previous)):
            if kind in self._sends:
                operations.append(dist.P2POp(dist.isend, self._sends[kind], to, self._group))
        for tensor, sender in ((x, self._previous), (gradient, self._next)):
            if tensor is not None:
                operations.append(dist.P2POp(dist.irecv, tensor, sender, self._group))
        self._works = dist.batch_isend_irecv(operations) if operations else []
