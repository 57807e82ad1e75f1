"""What fingerprints of a chain must say whatever the weights and tokens were.

Cheap to check, and what somebody overlooks who writes a chain by hand.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmark.evidence.chain_links import Chain
from benchmark.evidence.link_contents import BeginLink, CheckpointLink, EvaluationLink, ResumeLink, StepLink
from benchmark.evidence.mismatch import Mismatch
from benchmark.evidence.tensor_prints import PRINT, PROJECTION, from_text
from stage.errors import InputError

Parts = tuple[tuple[str, str, np.dtype[Any]], ...]
"""Name, text and kind of numbers."""
LEAST_BATCH = 8
"""Samples from which on two batches of the same tokens are no accident, however few documents there are."""


def unreadable_prints(chain: Chain) -> Iterator[Mismatch]:
    """Fingerprints of another number of tensors than the chain names."""
    tensors = len(chain.begin.names) if chain.begin is not None else 0
    for link in chain.links:
        content = link.content
        if isinstance(content, StepLink):
            parts: Parts = (("weights", content.weights, PRINT), ("projections", content.projections, PROJECTION))
        elif isinstance(content, BeginLink | ResumeLink | CheckpointLink):
            state = content.state
            moments = (("exp_avg", state.exp_avg, PRINT), ("exp_avg_sq", state.exp_avg_sq, PRINT))
            parts = (("weights", state.weights, PRINT), *moments)
        else:
            continue
        for name, text, dtype in parts:
            try:
                from_text(text, dtype, tensors, name)
            except InputError as error:
                yield Mismatch(content.step, f"fingerprints on line {link.line}", name, str(error))


def steps_without_effect(chain: Chain) -> Iterator[Mismatch]:
    """Every step moves weights, but for one without a finite norm, which is skipped and moves none."""
    before: str | None = None
    for link in chain.links:
        content = link.content
        if isinstance(content, BeginLink | ResumeLink):
            before = content.state.weights
        elif isinstance(content, StepLink):
            moves = not content.skipped and content.learning_rate > 0
            if before is not None and (content.weights != before) != moves:
                found = "as before the step" if moves else "others than before the step"
                due = "an update moves them" if moves else "a step that is skipped leaves them"
                yield Mismatch(content.step, "weights", found, due)
            if content.skipped == math.isfinite(content.grad_norm):
                done = "skipped" if content.skipped else "not skipped"
                due = "a step is skipped where its norm is no finite number"
                yield Mismatch(content.step, "the update", f"{done} with a norm of {content.grad_norm}", due)
            before = content.weights


def batches_again(chain: Chain, batch_size: int) -> Iterator[Mismatch]:
    """No batch is trained on twice."""
    first: dict[tuple[str, str], int] = {}
    for step, link in sorted(chain.steps.items()) if batch_size >= LEAST_BATCH else ():
        for what, value in (("samples", link.samples), ("tokens", link.tokens)):
            other = first.setdefault((what, value), step)
            if other != step:
                yield Mismatch(step, f"fingerprint of the {what}", value, f"that of step {other}")


def evaluations_apart(chain: Chain) -> Iterator[Mismatch]:
    """All of the same validation set."""
    links = chain.of(EvaluationLink)
    for link in links[1:]:
        if link.scored_tokens != links[0].scored_tokens:
            due = f"{links[0].scored_tokens} after {links[0].step} steps"
            yield Mismatch(link.step, "scored tokens", str(link.scored_tokens), due)
