"""The links that a run adds to its evidence, and a replay compares: made on all processes, given out on rank 0."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from benchmark.evidence.link_contents import CheckpointLink, Content, EvaluationLink, StatePrint, StepLink
from benchmark.evidence.tensor_prints import PRINT, PROJECTION, as_text, joined_halves
from benchmark.training.engine.adam import MOMENTS
from benchmark.training.engine.distributed import World
from benchmark.training.engine.micro_batches import training_sample_ids
from benchmark.training.engine.train_state import TrainState
from benchmark.training.guards.witness.later_sum import LaterSum
from benchmark.training.guards.witness.state_prints import StatePrints
from benchmark.training.guards.witness.witnessed_samples import WitnessedSamples
from data_prep.sample_order.token_windows import TokenWindows

LOWER = (1 << 32) - 1


class StepFigures(Protocol):
    """Of a step, equal on all processes (``StepResult``)."""

    @property
    def loss(self) -> float: ...

    @property
    def grad_norm(self) -> float: ...

    @property
    def learning_rate(self) -> float: ...

    @property
    def skipped(self) -> bool: ...


@dataclass(frozen=True)
class _Done:
    """A step whose fingerprints are on their way."""

    step: int
    time_ms: int
    first_sample: int
    result: StepFigures
    sums: LaterSum


class StepWitness:
    """All methods are collective."""

    def __init__(
        self,
        state: TrainState,
        world: World,
        windows: TokenWindows,
        give: Callable[[Content], None],
        clock_ms: Callable[[], int],
    ) -> None:
        """``windows``: of the training data. ``give`` gets the links in their order, on rank 0."""
        self._state, self._world, self._give, self._clock_ms = state, world, give, clock_ms
        self.windows = WitnessedSamples(windows)
        """What training has to read from."""
        self.prints = StatePrints(state)
        self._done: _Done | None = None
        pipeline, tensor = world.mesh["pipeline"], world.mesh["tensor"]
        self._counts_samples = pipeline.get_local_rank() == 0 and tensor.get_local_rank() == 0
        """Of the processes that read the same samples, one counts."""

    def stepped(self, result: StepFigures, *, step: int, first_sample: int) -> None:
        """A step is done. Its link is given out with the next call: nobody waits for the fingerprints."""
        self.finish()
        halves = [part for number in self._samples(first_sample) for part in (number & LOWER, number >> 32)]
        # Made on the device, for a copy from the host would wait.
        own = [torch.full((1,), float(half), dtype=torch.float64, device=self._world.device) for half in halves]
        sums = LaterSum(torch.cat([self.prints.weights(), *own]), self._world)
        self._done = _Done(step, self._clock_ms(), first_sample, result, sums)

    def finish(self) -> None:
        """Give out the link of the last step."""
        if self._done is None:
            return
        done, self._done = self._done, None
        values = done.sums.result()
        if self._world.rank != 0:
            return
        count, row = len(self.prints.names), values.numpy()
        samples, tokens = (int(joined_halves(*row[[at, at + 1]])) for at in (3 * count, 3 * count + 2))
        self._give(
            StepLink(
                step=done.step,
                time_ms=done.time_ms,
                first_sample=done.first_sample,
                samples=f"{samples:016x}",
                tokens=f"{tokens:016x}",
                loss=done.result.loss,
                grad_norm=done.result.grad_norm,
                learning_rate=done.result.learning_rate,
                skipped=done.result.skipped,
                weights=_prints_as_text(values[: 2 * count]),
                projections=as_text(row[2 * count : 3 * count], PROJECTION),
            )
        )

    def evaluated(self, log_perplexity: float, scored_tokens: int, *, step: int) -> None:
        """The validation set was evaluated after ``step`` steps."""
        self.finish()
        if self._world.rank == 0:
            self._give(EvaluationLink(step, self._clock_ms(), log_perplexity, scored_tokens))

    def checkpoint(self, *, step: int) -> None:
        """A checkpoint is about to be begun. Training waits for the device, as it does for the checkpoint anyway."""
        self.finish()
        state = self.state_print()
        if self._world.rank == 0:
            self._give(CheckpointLink(step, self._clock_ms(), state))

    def state_print(self) -> StatePrint:
        """Of weights and moments as they are."""
        count = len(self.prints.names)
        values = LaterSum(torch.cat([self.prints.weights(), self.prints.moments()]), self._world).result()
        starts = [0, *(3 + 2 * number for number in range(len(MOMENTS)))]  # behind the weights their projections
        return StatePrint(*(_prints_as_text(values[start * count :][: 2 * count]) for start in starts))

    def _samples(self, first_sample: int) -> tuple[int, int]:
        """Fingerprints of this process's samples and tokens of a step."""
        config = self._state.config
        if self._world.reads_tokens:
            ids = training_sample_ids(
                first_sample,
                micro_batch_size=config.system.micro_batch_size,
                num_microbatches=config.num_microbatches,
                rank=self._world.data_rank,
                world_size=self._world.data_parallel,
            )
            found = self.windows.take(ids.flatten().tolist())
            if self._counts_samples:
                return found
        return 0, 0


def _prints_as_text(halves: Tensor) -> str:
    """Of lower halves and then upper halves."""
    low, high = np.split(halves.numpy(), 2)
    return as_text(joined_halves(low, high), PRINT)
