"""The evidence of a run (--evidence): its chain of records, from the state it starts with to the digest of its log.

The design is in benchmark/evidence/chain.py. Nothing here stops or slows training: lines are written by a thread, and
nobody waits for the fingerprints of a step, whose record is given out with the next event.
"""

import hashlib
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from benchmark.config.run_config import RunConfig
from benchmark.events.background_sink import Background
from benchmark.events.event import Event
from benchmark.events.event_log import EventLog
from benchmark.events.line_files import LineFile
from benchmark.events.mlperf_log import MlperfLog
from benchmark.evidence.chain import (
    EVIDENCE,
    NOTHING,
    VERSION,
    AnyRecord,
    Begin,
    Checkpoint,
    End,
    Evaluation,
    Step,
    encode,
    read_chain,
)
from benchmark.machine.kernel_facts import kernel_facts
from benchmark.training.engine.distributed import World
from benchmark.training.engine.tensor_fingerprint import StateFingerprints, as_text
from benchmark.training.engine.train_state import TrainState
from benchmark.training.guards.same_inputs import ContentIdentity, InputIdentities
from stage.errors import InputError


class Evidence:
    """What a run calls; rank 0 writes. What is collective says so."""

    def __init__(self, config: RunConfig, world: World, state: TrainState, events: EventLog, attempt: str) -> None:
        self._config, self._world, self._state, self._events = config, world, state, events
        self._attempt = attempt
        self._fingerprints = StateFingerprints(state)
        self._step: tuple[Callable[[str], Step], _LaterSum] | None = None
        """The last step's record without its fingerprint, which is on its way."""
        self._file: _ChainFile | None = None

    def begin(self, inputs: InputIdentities | None, *, resumed: bool) -> None:
        """Record the state that training starts with. Collective. ``inputs``: rank 0's."""
        weights, moments = self._state_fingerprints()
        progress = self._state.progress
        if self._world.rank != 0:
            return
        self._file = _ChainFile(self._config.run_dir / EVIDENCE)
        self._add(
            Begin(
                attempt=self._attempt,
                step=progress.steps,
                version=VERSION,
                continues=progress.evidence_head if resumed else "",
                config=recorded_config(self._config, progress.seed),
                kernels=kernel_facts(self._world.device, deterministic=self._config.deterministic),
                inputs=input_digests(inputs) if inputs is not None else {},
                weights=weights,
                moments=moments,
            )
        )

    def step_done(self, *, step: int, first_sample: int, loss: float, grad_norm: float, learning_rate: float) -> None:
        """Record the step with the number ``step``; the figures are equal on all processes. Collective."""
        self._give()
        record = partial(Step, self._attempt, step, first_sample, loss, grad_norm, learning_rate)
        self._step = record, _LaterSum(self._fingerprints.weights(), self._world)

    def evaluated(self, log_perplexity: float) -> None:
        """Record an evaluation. Collective."""
        self._give()
        self._add(Evaluation(self._attempt, self._state.progress.steps, log_perplexity))

    def about_to_save(self) -> None:
        """Record that a checkpoint is about to be begun, which will know the digest of this record. Collective."""
        self._give()
        self._add(Checkpoint(self._attempt, self._state.progress.steps, *self._state_fingerprints()))
        if self._file is not None:
            self._state.progress.evidence_head = self._file.head

    def end(self) -> None:
        """Give the MLPerf log the digest of the last record, before its run_stop. Collective."""
        self._give()
        if self._file is not None:
            self._events.point("evidence", self._file.head, step=self._state.progress.trained_tokens)

    def close(self, status: str, log: MlperfLog | None) -> None:
        """Record the digest of the MLPerf log, which is complete now.

        The digest of a part of it would accuse an honest run: where its disk has refused lines until now there is no
        such record, which is a gap.
        """
        if self._file is None:
            return
        if log is not None and self._events.drain(log):
            with (self._config.run_dir / log.name).open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            self._add(End(self._attempt, self._state.progress.steps, status, digest))
        elif log is not None:
            self._events.note("message", f"the evidence has no end: lines of {log.name} could not be written")
        self._file.close()

    def _give(self) -> None:
        """Write the record of the last step."""
        if self._step is not None:
            record, weights = self._step
            self._step = None
            self._add(record(as_text(weights.result())))

    def _state_fingerprints(self) -> tuple[str, str]:
        """Of weights and moments as they are; training waits for the device. Collective."""
        sums = (_LaterSum(own, self._world) for own in (self._fingerprints.weights(), self._fingerprints.moments()))
        weights, moments = (as_text(one.result()) for one in sums)
        return weights, moments

    def _add(self, record: AnyRecord) -> None:
        if self._file is not None:
            self._file.add(record)


class _LaterSum:
    """A sum over all processes: asked for at the end of the next step, when the device has been waited for anyway."""

    def __init__(self, values: Tensor, world: World) -> None:
        """Collective. ``values`` are overwritten."""
        self._values = values
        self._copied: torch.cuda.Event | None = None
        self._work: dist.Work | None = None
        if world.device.type == "cuda":
            dist.all_reduce(values)  # in the order of the stream: no second communicator is busy beside it
            self._values = torch.empty_like(values, device="cpu", pin_memory=True).copy_(values, non_blocking=True)
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record()
        else:
            self._work = dist.all_reduce(values, async_op=True)

    def result(self) -> list[int]:
        if self._copied is not None:
            self._copied.synchronize()
        if self._work is not None:
            self._work.wait()
        return [int(value) for value in self._values.tolist()]


class _ChainFile:
    """The chain's file, which is only appended to, by a thread."""

    def __init__(self, path: Path) -> None:
        """Go on behind the last whole line of what is there; what is no chain is set aside, never deleted."""
        kept, self.head = 0, NOTHING
        try:
            chain = read_chain(path)
            if chain.problem is not None:
                raise InputError(chain.problem.text())
            if chain.links:
                kept, self.head = chain.links[-1].end, chain.head
        except InputError:
            number = 1
            while (aside := path.with_name(f"{path.name}.set_aside_{number}")).exists():
                number += 1
            if path.exists():
                path.rename(aside)
        self._background = Background(_Lines(path, kept))

    def add(self, record: AnyRecord) -> None:
        """Append a record; returns at once."""
        line, self.head = encode(record, self.head)
        self._background.write(Event("record", "POINT_IN_TIME", line, {}, 0, "", 0, mlperf=False))

    def close(self) -> None:
        self._background.close()


class _Lines:
    """A sink of lines (``Sink``)."""

    name = EVIDENCE

    def __init__(self, path: Path, kept: int) -> None:
        self._file = LineFile(path)
        self._file.cut(kept)

    def write(self, event: Event) -> None:
        self._file.write(event.value)

    def close(self) -> None:
        self._file.close()


def recorded_config(config: RunConfig, seed: int) -> dict[str, Any]:
    """Return what a replay needs, and nothing that could run a program, write a file or open a connection."""
    return {
        "benchmark": asdict(config.benchmark),
        "system": asdict(config.system),
        "precision": config.precision,
        "deterministic": config.deterministic,
        "seed": seed,
        "train_data_path": config.train_data_path,
        "valid_data_path": config.valid_data_path,
        "checkpoint": None if config.checkpoint is None else str(config.checkpoint),
    }


def input_digests(inputs: InputIdentities) -> dict[str, Any]:
    """Return the digests of what is read, by what it is for: "train 0", "valid 0", "checkpoint"; without paths."""
    found: dict[str, ContentIdentity] = {f"train {number}": one for number, one in enumerate(inputs.train)}
    found |= {f"valid {number}": one for number, one in enumerate(inputs.valid)}
    if inputs.checkpoint is not None:
        found["checkpoint"] = inputs.checkpoint
    weights = {"train weights": inputs.train_weights, "valid weights": inputs.valid_weights}
    return {name: {**one.facts, "md5": one.md5} for name, one in found.items()} | weights
