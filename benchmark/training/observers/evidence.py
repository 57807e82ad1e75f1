"""The evidence of a run (--evidence): its chain of records, from the initial state to the digest of its log.

The design is in benchmark/run_record/evidence_chain.py. A thread writes the lines: neither an error nor a slow
disk reaches training.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor

from benchmark.config.number_formats import Precision
from benchmark.config.run_sections import DataOptions
from benchmark.run_record.endings import StopReason
from benchmark.run_record.events.background_sink import Background
from benchmark.run_record.events.event import Event
from benchmark.run_record.events.line_files import LineFile
from benchmark.run_record.evidence_chain import (
    NOTHING,
    VERSION,
    AnyRecord,
    BeginRecord,
    CheckpointRecord,
    EndRecord,
    EvaluationRecord,
    OptimizerStepRecord,
    encode,
    read_chain,
)
from benchmark.run_record.file_names import EVIDENCE_FILE
from benchmark.training.engine.tensor_fingerprint import StateFingerprints, as_text
from benchmark.training.engine.train_state import TrainState
from benchmark.training.machine.run_environment import kernel_facts
from benchmark.training.observer import FinishedStep, Observer
from benchmark.training.run_log import RunLog
from benchmark.training.same_run import ContentIdentity, InputIdentities
from benchmark.training.step import EvaluationResult
from foundation.disk_answers import is_there
from foundation.errors import InputError


class Evidence(Observer):
    """Record the run in the chain of evidence; only rank 0 writes."""

    def __init__(
        self,
        path: Path,
        config: Mapping[str, Any],
        inputs: InputIdentities | None,
        attempt: str,
        state: TrainState,
        log: RunLog,
    ) -> None:
        """``path``: of the chain. ``config``: the value of :func:`recorded_config`. ``inputs``: the inputs'
        identities, on rank 0. ``attempt``: its name."""
        self._path, self._config, self._inputs, self._attempt = path, config, inputs, attempt
        self._state, self._log = state, log
        self._fingerprints = StateFingerprints(state)
        self._background: Background | None = None
        self._head = NOTHING
        """Digest of the last record."""

    def begin(self) -> None:
        """Record the state that training starts with. Collective."""
        weights, moments = self._state_fingerprints()
        progress, world = self._state.progress, self._state.world
        if world.rank != 0:
            return
        file = _ChainFile(self._path, self._log.require_lease)
        self._background, self._head = Background(file), file.head
        self._add(
            BeginRecord(
                attempt=self._attempt,
                step=progress.steps,
                version=VERSION,
                continues=progress.evidence_head,
                config=dict(self._config),
                kernels=kernel_facts(world.device, deterministic=self._config["deterministic"]),
                inputs=input_digests(self._inputs) if self._inputs is not None else {},
                weights=weights,
                moments=moments,
            )
        )

    def step_done(self, step: FinishedStep) -> None:
        """Record a step. Collective."""
        result, weights = step.result, self._summed(self._fingerprints.weights())
        figures = (result.loss, result.grad_norm, result.learning_rate)
        self._add(OptimizerStepRecord(self._attempt, self._state.progress.steps, step.first_sample, *figures, weights))

    def evaluated(self, result: EvaluationResult) -> None:
        self._add(EvaluationRecord(self._attempt, self._state.progress.steps, result.log_perplexity))

    def about_to_save(self) -> None:
        """Record the checkpoint, which then stores the digest of this record. Collective."""
        self._add(CheckpointRecord(self._attempt, self._state.progress.steps, *self._state_fingerprints()))
        if self._background is not None:
            self._state.progress.evidence_head = self._head

    def end(self, end: StopReason) -> None:
        """Write the digest of the last record into the MLPerf log, end the log, and record the log's own digest.

        If the disk has refused lines of the log until now, no such record is written and the chain has a gap: the
        digest of a partial log would accuse an honest run.
        """
        if self._background is None:
            return
        events, log = self._log.events, self._log.mlperf_log
        events.point("evidence", self._head, step=self._state.progress.trained_tokens)
        self._log.end(end)
        if log is not None and events.drain(log):
            with log.path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            self._add(EndRecord(self._attempt, self._state.progress.steps, end.ending, digest))
        elif log is not None:
            events.warn(f"the evidence has no end: lines of {log.name} could not be written")
        self._background.close()

    def _state_fingerprints(self) -> tuple[str, str]:
        """Return the fingerprints of the current weights and moments. Collective."""
        return self._summed(self._fingerprints.weights()), self._summed(self._fingerprints.moments())

    def _summed(self, fingerprint: Tensor) -> str:
        """Sum a fingerprint over all processes; waits for the device. Collective."""
        dist.all_reduce(fingerprint)
        return as_text(fingerprint.tolist())

    def _add(self, record: AnyRecord) -> None:
        """Append a record, on rank 0; returns at once."""
        if self._background is not None:
            line, self._head = encode(record, self._head)
            self._background.write(Event("record", "POINT_IN_TIME", line, {}, 0, "", 0, mlperf=False))


class _ChainFile:
    """The chain's file: a sink of lines that only appends."""

    name = EVIDENCE_FILE

    def __init__(self, path: Path, require_lease: Callable[[], object]) -> None:
        """Continue after the last whole record of an existing chain; set a file that is no chain aside, never delete
        it."""
        end_of_chain, self.head = 0, NOTHING
        try:
            chain = read_chain(path)
            if chain.problem is not None:
                raise InputError(chain.problem.text())
            if chain.links:
                end_of_chain, self.head = chain.links[-1].end, chain.head
        except InputError:
            number = 1
            while is_there(aside := path.with_name(f"{path.name}.set_aside_{number}")):
                number += 1
            if is_there(path):
                path.rename(aside)
        self._file = LineFile(path, require_lease)
        self._file.cut(end_of_chain)

    def write(self, event: Event) -> None:
        self._file.write(event.value)

    def close(self) -> None:
        self._file.close()


def recorded_config(
    state: TrainState, data: DataOptions, *, precision: Precision, deterministic: bool
) -> dict[str, Any]:
    """Return the configuration that a replay needs, and nothing that could run a program, write a file or open a
    connection."""
    return {
        "benchmark": asdict(state.benchmark),
        "system": asdict(state.system),
        "precision": precision,
        "deterministic": deterministic,
        "seed": state.progress.seed,
        "train_data_path": data.train_data_path,
        "valid_data_path": data.valid_data_path,
        "checkpoint": None if data.checkpoint is None else str(data.checkpoint),
    }


def input_digests(inputs: InputIdentities) -> dict[str, Any]:
    """Return the digests of the inputs, without paths, by purpose: "train 0", "valid 0", "checkpoint"."""
    identities: dict[str, ContentIdentity] = {
        f"train {number}": identity for number, identity in enumerate(inputs.train)
    }
    identities |= {f"valid {number}": identity for number, identity in enumerate(inputs.valid)}
    if inputs.checkpoint is not None:
        identities["checkpoint"] = inputs.checkpoint
    weights = {"train weights": inputs.train_weights, "valid weights": inputs.valid_weights}
    return {name: {**identity.facts, "md5": identity.md5} for name, identity in identities.items()} | weights
