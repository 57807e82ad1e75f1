"""Forward and backward passes through a pipeline, by PyTorch's 1F1B or interleaved 1F1B schedule."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B

from benchmark.config.run_config import RunConfig
from benchmark.training.engine.distributed import World
from benchmark.training.engine.forward_backward import ForwardBackward, mean_loss
from benchmark.training.engine.micro_batches import MicroBatch

LossFunction = Callable[[Tensor, Tensor], Tensor]
"""Token losses [B, S] and loss mask [B, S] to a scalar."""


class Pipeline(ForwardBackward):
    """Micro-batches follow each other through the pipeline's stages; this process has one stage for each chunk."""

    def __init__(self, config: RunConfig, world: World, model_parts: list[nn.Module]) -> None:
        super().__init__(config, world, model_parts)
        batches = config.num_microbatches
        self.training_schedule = self._schedule(batches, lambda losses, mask: mean_loss(losses, mask) / batches)
        self._evaluation_schedules: dict[int, Any] = {}
        """By number of micro-batches."""

    def train(self, batches: Sequence[MicroBatch]) -> Tensor:
        self.micro_batch_losses = self._run(self.training_schedule.step, batches)
        return self.micro_batch_losses.sum() / (self._world.data_parallel * self._world.loss_copies)

    @torch.no_grad()
    def evaluate(self, batches: Iterable[MicroBatch]) -> Tensor:
        total = torch.zeros(2, dtype=torch.float64, device=self._world.device)
        for some in self._evaluation_runs(list(batches)):
            losses = self._run(self._evaluation_schedule(len(some)).eval, some)
            if len(losses):  # on the last stage
                scored = torch.stack([batch.loss_mask.sum() for batch in some]).sum()
                total += torch.stack([losses.double().sum(), scored.double().to(total.device)])
        return total / self._world.loss_copies

    def _evaluation_runs(self, batches: list[MicroBatch]) -> list[list[MicroBatch]]:
        """Runs of the pipeline, equally long: as few as training's number of micro-batches allows.

        The length is a multiple of the stages, which interleaving needs; the last run is filled with batches that
        do not count. 10 batches, 4 in a training step, 2 stages: 3 runs of 4, the last two batches being fill.
        """
        stages = self._config.system.pipeline_parallel
        runs = math.ceil(len(batches) / self._config.num_microbatches)
        length = math.ceil(len(batches) / runs / stages) * stages
        fill = [batches[0].without_loss()] * (runs * length - len(batches))
        filled = batches + fill
        return [filled[start : start + length] for start in range(0, len(filled), length)]

    def _evaluation_schedule(self, num_microbatches: int) -> Any:
        if num_microbatches not in self._evaluation_schedules:
            made = self._schedule(num_microbatches, lambda losses, mask: (losses * mask).sum())
            self._evaluation_schedules[num_microbatches] = made
        return self._evaluation_schedules[num_microbatches]

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
        """A schedule has its own stages, for it keeps their buffers."""
        stages = [self._stage(part, chunk) for chunk, part in enumerate(self._model_parts)]
        if self._config.system.pipeline_chunks == 1:
            return Schedule1F1B(stages[0], num_microbatches, loss_fn=loss, scale_grads=False)
        return ScheduleInterleaved1F1B(stages, num_microbatches, loss_fn=loss, scale_grads=False)  # type: ignore[arg-type]

    def _stage(self, part: nn.Module, chunk: int) -> PipelineStage:
        """The stage with the shapes of what it receives and sends, so that nobody has to ask."""
        system, model = self._config.system, self._config.benchmark.model
        number, count = self._pipeline_rank + chunk * system.pipeline_parallel, system.num_pipeline_stages
        tokens = torch.empty(system.micro_batch_size, model.seq_length, dtype=torch.int64, device="meta")
        own_part = model.seq_length // system.tensor_parallel
        dtype = torch.bfloat16 if self._config.precision == "bf16" else torch.float32
        hidden = torch.empty(system.micro_batch_size, own_part, model.hidden_size, dtype=dtype, device="meta")
        hidden.requires_grad_()
        losses = torch.empty(tokens.shape, dtype=torch.float32, device="meta", requires_grad=True)
        return PipelineStage(
            part,
            number,
            count,
            self._world.device,
            input_args=(tokens if number == 0 else hidden,),
            output_args=(losses if number == count - 1 else hidden,),
            group=self._world.mesh["pipeline"].get_group(),
        )
