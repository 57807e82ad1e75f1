"""Forward and backward passes over micro-batches: of a whole model, or of the stages of a pipeline.

Losses are returned as this process's share: summed over all processes they are the loss of the global batch.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B

from benchmark.config.run_config import RunConfig
from benchmark.training.engine.distributed import World
from benchmark.training.engine.micro_batches import MicroBatch
from model.cpu_bf16 import Bf16ByFp32, cpu_has_bf16

LossFunction = Callable[[Tensor, Tensor], Tensor]


class Passes(ABC):
    """Of this process's ``stages``, one for each of its chunks of a pipeline, or the whole model."""

    def __init__(self, config: RunConfig, world: World, stages: list[nn.Module]) -> None:
        self._config, self._world, self._stages = config, world, stages
        slow_bf16 = config.precision == "bf16" and world.device.type == "cpu" and not cpu_has_bf16()
        self._context: AbstractContextManager[Any] = Bf16ByFp32() if slow_bf16 else nullcontext()
        """All forward and backward passes run in it."""

    @abstractmethod
    def train(self, batches: Sequence[MicroBatch]) -> Tensor:
        """Accumulate the gradient of the mean loss, and return this process's share of that loss, a scalar."""

    @abstractmethod
    def evaluate(self, batches: Iterable[MicroBatch]) -> Tensor:
        """This process's share of the sum of the losses that count, and of their number: [2], float64.

        There are as many batches on all processes.
        """


class WholeModel(Passes):
    """Each micro-batch goes through all layers; the next begins when its gradient is done."""

    def train(self, batches: Sequence[MicroBatch]) -> Tensor:
        model, keep = cast(FSDPModule, self._stages[0]), self._config.system.keep_unsharded
        losses = []
        for number, batch in enumerate(batches, 1):
            if keep:
                last = number == len(batches)
                model.set_requires_gradient_sync(last)
                model.set_reshard_after_backward(last)
            with self._context:
                own = batch.to(self._world.device)
                loss = mean_loss(self._stages[0](own.tokens, own.labels), own.loss_mask) / len(batches)
                loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        return torch.stack(losses).sum() / (self._world.data_parallel * self._world.loss_copies)

    @torch.no_grad()
    def evaluate(self, batches: Iterable[MicroBatch]) -> Tensor:
        total = torch.zeros(2, dtype=torch.float64, device=self._world.device)
        for batch in batches:
            with self._context:
                own = batch.to(self._world.device)
                losses = self._stages[0](own.tokens, own.labels)
            total += torch.stack([(losses * own.loss_mask).sum(), own.loss_mask.sum()])
        return total / self._world.loss_copies


class Pipeline(Passes):
    """Micro-batches follow each other through the stages, by PyTorch's 1F1B or interleaved 1F1B schedule."""

    def __init__(self, config: RunConfig, world: World, stages: list[nn.Module]) -> None:
        super().__init__(config, world, stages)
        batches = config.num_microbatches
        self.training_schedule = self._schedule(batches, lambda losses, mask: mean_loss(losses, mask) / batches)
        self._evaluation: dict[int, Any] = {}

    def train(self, batches: Sequence[MicroBatch]) -> Tensor:
        losses = self._run(self.training_schedule.step, batches)
        return losses.sum() / (self._world.data_parallel * self._world.loss_copies)

    @torch.no_grad()
    def evaluate(self, batches: Iterable[MicroBatch]) -> Tensor:
        """Batches go through in as few runs of the pipeline as the training's number of micro-batches allows."""
        waiting = list(batches)
        runs = math.ceil(len(waiting) / self._config.num_microbatches)
        stages = self._config.system.pipeline_parallel
        per_run = math.ceil(len(waiting) / runs / stages) * stages
        if per_run not in self._evaluation:
            self._evaluation[per_run] = self._schedule(per_run, lambda losses, mask: (losses * mask).sum())
        total = torch.zeros(2, dtype=torch.float64, device=self._world.device)
        waiting += [waiting[0].without_loss()] * (runs * per_run - len(waiting))
        for start in range(0, len(waiting), per_run):
            some = waiting[start : start + per_run]
            sums = self._run(self._evaluation[per_run].eval, some)
            scored = torch.stack([batch.loss_mask.sum() for batch in some]).sum() if len(sums) else torch.zeros(())
            total += torch.stack([sums.double().sum(), scored.double().to(total.device)])
        return total / self._world.loss_copies

    def _run(self, step: Callable[..., Any], batches: Sequence[MicroBatch]) -> Tensor:
        """One run of the pipeline; the loss of each micro-batch on the last stage, an empty tensor elsewhere."""
        batch = MicroBatch.joined([batch.to(self._world.device) for batch in batches])
        losses: list[Tensor] = []
        first = self._pipeline_rank == 0
        last = self._pipeline_rank == self._config.system.pipeline_parallel - 1
        inputs = (batch.tokens,) if first else ()
        labels = {"labels_BS": batch.labels} if last else {}
        with self._context:
            step(*inputs, target=batch.loss_mask if last else None, losses=losses, return_outputs=False, **labels)
        return torch.stack(losses).detach() if losses else torch.zeros(0, device=self._world.device)

    @property
    def _pipeline_rank(self) -> int:
        return self._world.mesh["pipeline"].get_local_rank()

    def _schedule(self, num_microbatches: int, loss: LossFunction) -> Any:
        system, group = self._config.system, self._world.mesh["pipeline"].get_group()
        stages = [self._stage(module, chunk, group) for chunk, module in enumerate(self._stages)]
        if system.pipeline_chunks == 1:
            return Schedule1F1B(stages[0], num_microbatches, loss_fn=loss, scale_grads=False)
        return ScheduleInterleaved1F1B(stages, num_microbatches, loss_fn=loss, scale_grads=False)  # type: ignore[arg-type]

    def _stage(self, module: nn.Module, chunk: int, group: dist.ProcessGroup) -> PipelineStage:
        """The stage with the shapes of what it receives and sends, so that nobody has to ask."""
        system, model = self._config.system, self._config.benchmark.model
        number = self._pipeline_rank + chunk * system.pipeline_parallel
        tokens = torch.empty(system.micro_batch_size, model.seq_length, dtype=torch.int64, device="meta")
        own_part = model.seq_length // system.tensor_parallel
        dtype = torch.bfloat16 if self._config.precision == "bf16" else torch.float32
        hidden = torch.empty(system.micro_batch_size, own_part, model.hidden_size, dtype=dtype, device="meta")
        hidden.requires_grad_()
        losses = torch.empty(tokens.shape, dtype=torch.float32, device="meta", requires_grad=True)
        return PipelineStage(
            module,
            number,
            system.num_stages,
            self._world.device,
            input_args=(tokens if number == 0 else hidden,),
            output_args=(losses if number == system.num_stages - 1 else hidden,),
            group=group,
        )


def mean_loss(losses_BS: Tensor, mask_BS: Tensor) -> Tensor:
    """Mean over the tokens that count, nats."""
    return (losses_BS * mask_BS).sum() / mask_BS.sum()
