"""Check that all copies of a tensor that several devices hold agree, to the bit.

LayerNorms, row biases and positions lie on every tensor-parallel rank, everything on every replica, a tied word table
on the first and on the last stage. Their values are not sent again after the start: they stay equal because every copy
gets the same update. BLOOM trained for weeks with LayerNorms that had drifted apart, since clipping left some copies
out; the loss does not show it. So weights and moments are compared at an interval, by fingerprints.
"""

import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from benchmark.run_record.endings import StopReason
from benchmark.run_record.events.event_log import EventLog
from benchmark.run_record.phases import PhaseLog
from benchmark.training.engine.adam import MOMENTS
from benchmark.training.engine.distributed import World
from benchmark.training.engine.rank_messages import all_messages
from benchmark.training.engine.tensor_fingerprint import fingerprint, place_factors
from benchmark.training.engine.train_state import TrainState
from benchmark.training.observer import FinishedStep, Observer
from checkpoint_convert.formats.boxes import whole_box
from model.sharding import AXES


@dataclass(frozen=True)
class Copies:
    """Tensors whose local part must be the same on every process of ``group``."""

    group: dist.ProcessGroup
    tensors: dict[str, Tensor]
    only_ends: bool = False
    """Only the first and the last process of the group hold the tensors; those between hold nothing."""


class CopyAudit(Observer):
    """Compare the copies at an interval, before each checkpoint, and when a guard asks."""

    def __init__(self, interval: int, state: TrainState, events: EventLog, phases: PhaseLog) -> None:
        """``interval``: steps between audits; with 0, only requested audits are made."""
        self._interval, self._state, self._events, self._phases = interval, state, events, phases
        self._audited_after = -1
        """Steps that were done at the last audit."""

    def between_steps(self, step: FinishedStep) -> StopReason | None:
        """Audit if the interval is over. Collective."""
        is_due = self._interval > 0 and self._state.progress.steps % self._interval == 0
        return self.compare() if is_due else None

    def about_to_save(self) -> StopReason | None:
        """Audit before the checkpoint, so that nothing unaudited is saved. Collective."""
        return self.compare()

    def compare(self) -> StopReason | None:
        """Compare all copies after this step, once. A run whose copies differ is not worth continuing or saving.
        Collective."""
        progress = self._state.progress
        if progress.steps == self._audited_after:
            return None
        self._audited_after = progress.steps
        self._phases.enter("audit", progress.steps)
        started = time.perf_counter()
        differences = audit_replicas(self._state)
        seconds = time.perf_counter() - started
        self._events.note("audit", steps=progress.steps, differences=differences, seconds=seconds)
        for line in differences:
            self._events.warn(f"after step {progress.steps}: {line}")
        if not differences:
            return None
        remainder = f" and {len(differences) - 1} more" if len(differences) > 1 else ""
        return StopReason(
            "failed", f"copies differ between devices, {differences[0]}{remainder}; this state was not saved"
        )


def audit_replicas(state: TrainState) -> list[str]:
    """Return the differences between copies on any process, as "NAME: ranks 1, 3 differ from rank 0". Collective.

    Costs one pass over the tensors that have copies, and 8 bytes for each of them between the processes.
    """
    world = state.world
    differences = [line for copies in _copies(state, world) for line in _differences(copies)]
    count = torch.tensor(len(differences), device=world.device)
    dist.all_reduce(count, dist.ReduceOp.MAX)
    if count.item() == 0:
        return []
    return sorted({line for lines in all_messages(differences, list[str]) for line in lines})


def _copies(state: TrainState, world: World) -> list[Copies]:
    """Return the copied tensors along each axis of the mesh, and those at the two ends of the pipeline."""
    tensors = {name: value for name, value in state.tensors().items() if isinstance(value, DTensor)}
    copies_by_group = []
    for axis in ("replicate", "tensor"):
        if world.axis_size(axis) > 1:
            copied = {name: value.to_local() for name, value in tensors.items() if _is_copied_along(value, axis)}
            copies_by_group.append(Copies(world.mesh.get_group(axis), copied))
    if state.tied_table.group is not None:
        names = [f"{kind}/{state.tied_table.name}" for kind in ("model", *MOMENTS)]
        empty = torch.zeros(0, device=world.device)
        table = {name: tensors[name].to_local() if name in tensors else empty for name in names}
        copies_by_group.append(Copies(state.tied_table.group, table, only_ends=True))
    return copies_by_group


def _is_copied_along(tensor: DTensor, axis: str) -> bool:
    return tensor.placements[AXES[1:].index(axis)].is_replicate()


def _differences(copies: Copies) -> list[str]:
    fingerprints = torch.stack(
        [
            fingerprint(tensor, place_factors(whole_box(tensor.shape), 0, tensor.device))
            for tensor in copies.tensors.values()
        ]
    )
    ranks = dist.get_process_group_ranks(copies.group)
    gathered = [torch.empty_like(fingerprints) for _ in ranks]
    dist.all_gather(gathered, fingerprints, group=copies.group)
    table = torch.stack(gathered).cpu()
    lines = []
    for column, name in enumerate(copies.tensors):
        values = list(zip(ranks, table[:, column], strict=True))
        compared = [values[0], values[-1]] if copies.only_ends else values
        differing_ranks = [rank for rank, value in compared if value != table[0, column]]
        if differing_ranks:
            lines.append(f"{name}: ranks {', '.join(map(str, differing_ranks))} differ from rank {ranks[0]}")
    return lines
