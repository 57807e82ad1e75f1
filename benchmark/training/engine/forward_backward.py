"""Forward and backward passes over micro-batches, through a whole model; through a pipeline: pipeline.py.

Losses are returned as this process's share: summed over all processes they are the loss of the global batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from benchmark.config.run_config import RunConfig
from benchmark.training.engine.distributed import World
from benchmark.training.engine.micro_batches import MicroBatch
from model.cpu_bf16 import Bf16ByFp32, cpu_has_bf16


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
    def train(self, batches: Sequence[MicroBatch]) -> Tensor:
        """Accumulate the gradient of the mean loss, and return this process's share of that loss, a scalar."""

    @abstractmethod
    def evaluate(self, batches: Iterable[MicroBatch]) -> Tensor:
        """This process's share of the sum of the losses that count, and of their number: [2], float64.

        There are as many batches on all processes.
        """


class WholeModel(ForwardBackward):
    """Each micro-batch goes through all layers; the next begins when its gradient is done."""

    def train(self, batches: Sequence[MicroBatch]) -> Tensor:
        model, keep = cast(FSDPModule, self._model_parts[0]), self._config.system.keep_unsharded
        losses = []
        for number, batch in enumerate(batches, 1):
            if keep:
                last = number == len(batches)
                model.set_requires_gradient_sync(last)
                model.set_reshard_after_backward(last)
            with self._context:
                own = batch.to(self._world.device)
                loss = mean_loss(self._model_parts[0](own.tokens, own.labels), own.loss_mask) / len(batches)
                loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        self.micro_batch_losses = torch.stack(losses)
        return self.micro_batch_losses.sum() / (self._world.data_parallel * self._world.loss_copies)

    @torch.no_grad()
    def evaluate(self, batches: Iterable[MicroBatch]) -> Tensor:
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
