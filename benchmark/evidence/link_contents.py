"""What the links of a run's evidence say: plain data, one dataclass for each kind of link."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

VERSION = 1
"""Of the links' form and of the fingerprints."""


@dataclass(frozen=True)
class Dropped:
    """Links of this run that count no more: it went back behind them."""

    links: int
    head: str
    """Digest of the last of them."""


@dataclass(frozen=True)
class StatePrint:
    """Fingerprints of weights and moments, in the order of the chain's names: base64 of little-endian uint64."""

    weights: str
    exp_avg: str
    exp_avg_sq: str


@dataclass(frozen=True)
class Machinery:
    """What has to be the same where the same bits are expected."""

    layout: Mapping[str, Any]
    """How the model is spread over the devices."""
    kernels: Mapping[str, Any]
    """Device, version of PyTorch and whatever else chooses the kernels."""


@dataclass(frozen=True)
class BeginLink:
    """The chain begins: at the initial checkpoint, or later where earlier links are lost."""

    version: int
    step: int
    """Optimizer steps since the initial checkpoint; 0 there."""
    time_ms: int
    """Milliseconds since the epoch, as in the log."""
    seed: int
    """Of the data order."""
    precision: str
    benchmark: Mapping[str, Any]
    """As in config.json."""
    inputs: Mapping[str, Any]
    """MD5 sums of data and checkpoint by file name, as their manifests have them."""
    names: tuple[str, ...]
    """Of the parameters."""
    sizes: tuple[int, ...]
    """Values of each."""
    machinery: Machinery
    state: StatePrint
    dropped: Dropped | None = None


@dataclass(frozen=True)
class ResumeLink:
    """The run goes on from a checkpoint of its own; the chain was cut back to it."""

    step: int
    time_ms: int
    machinery: Machinery
    state: StatePrint
    """Of the checkpoint as it was loaded."""
    dropped: Dropped | None = None


@dataclass(frozen=True)
class StepLink:
    """An optimizer step."""

    step: int
    """Its number since the initial checkpoint, from 1."""
    time_ms: int
    """When it was done."""
    first_sample: int
    """Where in the order of samples it began to read, since step 0."""
    samples: str
    """Fingerprint of which documents its samples are made of; 16 hex digits."""
    tokens: str
    """Fingerprint of the tokens that were read, likewise."""
    loss: float
    grad_norm: float
    learning_rate: float
    skipped: bool
    weights: str
    """Fingerprints after the update, in the order of the chain's names: base64 of little-endian uint64."""
    projections: str
    """A projection of each tensor, from which follows how far two are apart: base64 of little-endian float32."""


@dataclass(frozen=True)
class CheckpointLink:
    """A checkpoint was begun."""

    step: int
    time_ms: int
    state: StatePrint


@dataclass(frozen=True)
class EvaluationLink:
    """The validation set was evaluated after ``step`` steps."""

    step: int
    time_ms: int
    log_perplexity: float
    scored_tokens: int


@dataclass(frozen=True)
class EndLink:
    """The run ended; its log is complete."""

    step: int
    time_ms: int
    status: str
    log_sha256: str
    """Of the MLPerf log, result_N.txt."""


Content = BeginLink | ResumeLink | StepLink | CheckpointLink | EvaluationLink | EndLink
KINDS: Mapping[str, type[Content]] = {
    "begin": BeginLink,
    "resume": ResumeLink,
    "step": StepLink,
    "checkpoint": CheckpointLink,
    "evaluation": EvaluationLink,
    "end": EndLink,
}
"""By the name a link bears."""
