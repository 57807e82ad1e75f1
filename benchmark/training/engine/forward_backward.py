"""Forward and backward passes over micro-batches: their interface, and those of a model that FSDP2 shards between them.

Where parameters are kept whole, and through a pipeline: pipeline.py.

Losses are returned as this process's share: summed over all processes they are the loss of the global batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from benchmark.config.run_config import RunConfig
from benchmark.training.engine.distributed import World
from benchmark.training.engine.micro_batches import MicroBatch
from model.cpu_bf16 import Bf16ByFp32, cpu_has_bf16
from model.passes.attention import settle_autograd_attention
from model.passes.tensor_group import ForwardWatch
from model.tensor_parallel import watch_collectives


class ForwardBackward(ABC):
    """Passes through this process's ``model_parts``, one for each of its chunks of a pipeline, or the whole model."""

    def __init__(self, config: RunConfig, world: World, model_parts: list[nn.Module]) -> None:
        self._config, self._world, self._model_parts = config, world, model_parts
        slow_bf16 = config.precision == "bf16" and world.device.type == "cpu" and not cpu_has_bf16()
        self._context: AbstractContextManager[Any] = Bf16ByFp32() if slow_bf16 else nullcontext()
        """All forward and backward passes run in it."""
        self.micro_batch_losses = torch.zeros(0)
        """[micro-batches] of the last training step, each divided by their number; [0] where this process has none."""

    @property
    def world(self) -> World:
        return self._world

    @abstractmethod
    def watch(self, watch: ForwardWatch) -> None:
        """Tell ``watch`` of the forward passes of all blocks from now on. Called once."""

    @abstractmethod
    def train(self, batches: Sequence[MicroBatch], number: int) -> Tensor:
        """Accumulate the gradient of the mean loss over ``number`` micro-batches, and return this process's share of
        that loss, a scalar. Processes that need no tokens are given none."""

    @abstractmethod
    def evaluate(self, batches: Iterable[MicroBatch], number: int) -> Tensor:
        """This process's share of the sum of the losses that count, and of their number: [2], float64.

        ``number`` of batches, the same on all processes; those that need no tokens read none.
        """


class ShardedModel(ForwardBackward):
    """Each micro-batch goes through all layers by autograd; FSDP2 gathers each block's parameters when they are needed,
    and reduces its gradients at once."""

    def __init__(self, config: RunConfig, world: World, model_parts: list[nn.Module]) -> None:
        super().__init__(config, world, model_parts)
        model = config.benchmark.model
        dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
        head_size = model.hidden_size // model.num_attention_heads
        settle_autograd_attention(world.device, dtype, model.seq_length, head_size)

    def watch(self, watch: ForwardWatch) -> None:
        """Hooks begin after FSDP's, which wait for parameters, and end before them."""

        def begin(*_: object) -> None:
            watch.begin()

        def end(*_: object) -> None:
            watch.end()

        if self._config.system.compile:  # the blocks are compiled, which the hooks must not be
            begin, end = (torch.compiler.disable(hook) for hook in (begin, end))  # type: ignore[no-untyped-call]
        layers = self._model_parts[0].encoder.layers  # type: ignore[union-attr]
        assert isinstance(layers, nn.ModuleDict)
        for block in layers.values():
            block.register_forward_pre_hook(begin)  # FSDP's was put before all others
            block.register_forward_hook(end, prepend=True)
        watch_collectives(watch)

    def train(self, batches: Sequence[MicroBatch], number: int) -> Tensor:
        losses = []
        for batch in batches:
            with self._context:
                own = batch.to(self._world.device)
                loss = mean_loss(self._model_parts[0](own.tokens, own.labels), own.loss_mask) / number
                loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        self.micro_batch_losses = torch.stack(losses)
        return self.micro_batch_losses.sum() / (self._world.data_parallel * self._world.loss_copies)

    @torch.no_grad()
    def evaluate(self, batches: Iterable[MicroBatch], number: int) -> Tensor:
        total = torch.zeros(2, dtype=torch.float64, device=self._world.device)
        for batch in batches:
            with self._context:
                own = batch.to(self._world.device)
                losses = self._model_parts[0](own.tokens, own.labels)
            total += torch.stack([(losses * own.loss_mask).sum(), own.loss_mask.sum()])
        return total / self._world.loss_copies


def mean_loss(losses_BS: Tensor, mask_BS: Tensor) -> Tensor:
    """Mean over the tokens that count, nats."""
    return (losses_BS * mask_BS).sum() / mask_BS.sum()
