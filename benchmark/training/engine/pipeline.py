"""Forward and backward passes of micro-batches through a pipeline; without one, the pipeline has one rank.

Losses are this rank's share: their sum over all ranks is the loss of the global batch.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from benchmark.config.number_formats import Precision
from benchmark.config.system_config import System
from benchmark.training.engine.distributed import World
from benchmark.training.engine.pipeline_messages import ArrivingMessage, Exchange
from benchmark.training.engine.pipeline_order import (
    PipelineShape,
    ScheduledPass,
    Slot,
    evaluation_slots,
    training_slots,
)
from benchmark.training.engine.rank_device import linear_formats, values_dtype, weight_terms
from model.cpu_bf16 import Bf16ByFp32, cpu_has_bf16
from model.decoder_sizes import DecoderSizes
from model.passes import pass_sizes
from model.passes.block_pass import ForwardWatch
from model.passes.chunk_pass import ChunkActivations, ChunkPass, MicroBatch
from model.passes.end_passes import sequence_first
from model.passes.linear.fp8_weight import rescale
from model.passes.tensor_group import Passing, TensorGroup, run_together, together


class Pipeline:
    """This rank's model chunks, and the other ranks of its pipeline.

    pipeline_order.py has the order of the passes, and model/passes/chunk_pass.py the passes.
    """

    def __init__(
        self,
        sizes: DecoderSizes,
        system: System,
        precision: Precision,
        world: World,
        chunks: Sequence[Mapping[str, DTensor]],
        bf16_layers: tuple[int, int] = (0, 0),
    ) -> None:
        """``chunks``: the parameters of each model chunk of this rank; ``bf16_layers``: as :func:`linear_formats`."""
        self.world = world
        self.micro_batch_losses = torch.zeros(0)
        """[micro-batches] of the last training step, each divided by their number; [0] on ranks without the output."""
        dtype = values_dtype(precision)
        bf16 = dtype == torch.bfloat16
        slow_bf16 = bf16 and world.device.type == "cpu" and not cpu_has_bf16()
        self._context: AbstractContextManager[Any] = Bf16ByFp32() if slow_bf16 else nullcontext()
        """The context of all passes."""
        mesh = world.mesh["pipeline"]
        self._shape = PipelineShape(
            mesh.size(), mesh.get_local_rank(), system.pipeline_chunks, apart=system.tensor_parallel > 1
        )
        tensor = TensorGroup(world.mesh["tensor"], system.collectives.copy_engines)
        self._chunks = [
            ChunkPass(
                parameters,
                sizes,
                tensor,
                bf16=bf16,
                batch=system.micro_batch_size,
                recompute=system.recompute,
                # In a pipeline a chunk's messages travel beside the passes of other chunks and ranks; several of them
                # would hold up its last backward pass, for whose gradients other ranks wait.
                least_weights=pass_sizes.LEAST_WEIGHTS if mesh.size() == 1 else None,
                terms_together=weight_terms(precision, sizes, system),
                shard_gradients=system.shard_gradients,
                linear=linear_formats(precision, sizes, system, bf16_layers),
            )
            for parameters in chunks
        ]
        self._groups = [group for chunk in self._chunks for group in chunk.groups]
        """All groups of parameters, in the order in which a step needs them first."""
        for earlier, later in itertools.pairwise(self._groups):
            earlier.following = later
        self._fp8_weights = [weight for chunk in self._chunks for weight in chunk.fp8_weights]
        rows = sizes.seq_length // system.tensor_parallel * system.micro_batch_size
        new_buffer = partial(torch.empty, dtype=dtype, device=world.device)
        group = mesh.get_group()
        self._exchange = Exchange(group, self._shape, partial(new_buffer, rows, sizes.hidden_size))
        # An evaluation has no backward passes whose work could hide a forward pass's collectives: two forward passes
        # do it for each other.
        self._evaluated_at_once = 2 if self._shape.apart else 1
        self._evaluation_exchange = Exchange(
            group, self._shape, partial(new_buffer, self._evaluated_at_once * rows, sizes.hidden_size)
        )

    def watch(self, watch: ForwardWatch) -> None:
        """Have ``watch`` observe the forward passes of all blocks from now on. Called once."""
        for chunk in self._chunks:
            chunk.watch(watch)

    @torch.no_grad()
    def train(self, batches: Sequence[MicroBatch], number: int) -> Tensor:
        """Put the gradient of the mean loss over ``number`` micro-batches, summed over all ranks, into the parameters'
        ``grad``. Return this rank's share of that loss, a scalar. ``batches`` is empty on ranks that need no tokens."""
        weight = 1 / (number * self.world.data_parallel)
        losses: list[Tensor] = []
        activations: dict[ScheduledPass, ChunkActivations] = {}

        def forward(scheduled: ScheduledPass, x: ArrivingMessage) -> Passing[None]:
            batch = self._batch_for(scheduled, lambda: batches[scheduled.micro_batch])
            chunk = self._chunks[scheduled.chunk]
            out, activations[scheduled] = yield from chunk.forward_to_train(x.wait(), batch, weight)
            if self._shape.is_last(scheduled.chunk):
                losses.append(out)
            else:
                self._exchange.send_on(out)

        def backward(scheduled: ScheduledPass, gradient: ArrivingMessage) -> Passing[None]:
            yield from self._chunks[scheduled.chunk].backward(
                activations.pop(scheduled),
                gradient.wait(),
                self._exchange.send_back,
                last=scheduled.micro_batch == number - 1,
                ends_turn=self._shape.ends_turn(scheduled.micro_batch, number),
            )

        self._run(training_slots(self._shape, number), forward, backward, self._exchange)
        self._end_reduce()
        share = torch.stack(losses) if losses else torch.zeros(0, device=self.world.device)
        self.micro_batch_losses = share * self.world.data_parallel
        return share.sum() / self.world.loss_copies

    @torch.no_grad()
    def evaluate(self, batches: Iterable[MicroBatch], number: int) -> Tensor:
        """Return this rank's share of the sum of the losses that count, and of their number: [2], float64.

        ``number``: micro-batches, the same on all ranks. Ranks that need no tokens read no batches.
        """
        total = torch.zeros(2, dtype=torch.float64, device=self.world.device)
        in_order = iter(batches)  # no rank has both embedding and output of a pipeline: each batch is read once
        at_once = self._evaluated_at_once

        def forward(scheduled: ScheduledPass, arriving: ArrivingMessage) -> Passing[None]:
            count = min(at_once, number - scheduled.micro_batch * at_once)
            slot_batches = [self._batch_for(scheduled, lambda: next(in_order)) for _ in range(count)]
            x = arriving.wait()
            inputs = [None] * count if x is None else x.chunk(at_once)[:count]
            chunk = self._chunks[scheduled.chunk]
            pairs = zip(inputs, slot_batches, strict=True)
            outs = yield from together(*(chunk.forward(hidden, batch) for hidden, batch in pairs))
            if not self._shape.is_last(scheduled.chunk):
                padded = [*outs, *outs][:at_once]  # the last slot may have fewer micro-batches
                self._evaluation_exchange.send_on(torch.cat(padded))
                return
            for out, batch in zip(outs, slot_batches, strict=True):
                assert batch is not None
                mask_T = sequence_first(batch.loss_mask)
                total.add_(torch.stack([(out * mask_T).sum(), mask_T.sum()]))

        slots = evaluation_slots(self._shape, -(-number // at_once))
        self._run(slots, forward, None, self._evaluation_exchange)
        return total / self.world.loss_copies

    def _run(
        self,
        slots: list[Slot],
        forward: Callable[[ScheduledPass, ArrivingMessage], Passing[None]],
        backward: Callable[[ScheduledPass, ArrivingMessage], Passing[None]] | None,
        exchange: Exchange,
    ) -> None:
        """Run the passes of the slots in order, with the messages between the ranks."""
        rescale(self._fp8_weights)
        self._groups[0].begin_gather()
        with self._context:
            exchange.begin(Slot(None, None), slots[0])
            for slot, following in itertools.pairwise([*slots, None]):
                assert slot is not None
                x, gradient = exchange.end_slot()
                exchange.begin(slot, following)
                passes = []
                if slot.forward is not None:
                    passes.append(forward(slot.forward, x))
                if slot.backward is not None and backward is not None:
                    passes.append(backward(slot.backward, gradient))
                for at_once in [passes] if self._shape.apart else [[single] for single in passes]:
                    run_together(*at_once)
                for arriving in (x, gradient):
                    arriving.wait()  # without a pass in this slot: the tensor that was sent with it may be freed
            for arriving in exchange.end_slot():
                arriving.wait()

    def _end_reduce(self) -> None:
        """Sum over replicas, in the order in which the sums over shards began, and wait for all sums."""
        for group in reversed(self._groups):
            group.begin_reduce_replicas()
        for group in reversed(self._groups):
            group.end_reduce()

    def _batch_for(self, scheduled: ScheduledPass, batch: Callable[[], MicroBatch]) -> MicroBatch | None:
        """Return a micro-batch on the device, for a chunk with embedding or output; None for other chunks."""
        if self._shape.is_first(scheduled.chunk) or self._shape.is_last(scheduled.chunk):
            return batch().to(self.world.device)
        return None
