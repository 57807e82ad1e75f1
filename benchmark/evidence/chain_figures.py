"""What losses, norms, moments and sizes of a chain must be whatever was trained.

Cheap to check, and what somebody overlooks who changes links and signs them anew.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from benchmark.config.run_config import Benchmark
from benchmark.evidence.chain_links import Chain
from benchmark.evidence.link_contents import BeginLink, CheckpointLink, ResumeLink, StatePrint, StepLink
from benchmark.evidence.mismatch import Mismatch
from model.flops import num_parameters

LARGEST = 3.4028235e38
"""Of float32, in which losses are computed."""
MOST_ALIKE = 7
"""Steps of a run with the same loss, or norm, to the last bit: one more is no accident."""


def unlikely_figures(steps: Sequence[StepLink]) -> Iterator[Mismatch]:
    """Losses and gradient norms that no step has."""
    for link in steps:
        if not link.skipped and not 0 < link.loss <= LARGEST:
            yield Mismatch(link.step, "loss", repr(link.loss), "a cross entropy: a number above 0")
        if link.grad_norm <= 0:
            yield Mismatch(link.step, "gradient norm", repr(link.grad_norm), "a number above 0")
    for name in ("loss", "grad_norm"):
        figures = Counter(getattr(link, name) for link in steps if math.isfinite(getattr(link, name)))
        for value, times in figures.items():
            if times > MOST_ALIKE:
                step = next(link.step for link in steps if getattr(link, name) == value)
                due = f"at most {MOST_ALIKE} that are the same to the last bit"
                yield Mismatch(step, name.replace("_", " "), f"{value!r} in {times} steps", due)


def moments_still(chain: Chain) -> Iterator[Mismatch]:
    """Each update changes both moments, and they are never one another."""
    before: StatePrint | None = None
    moved = False
    for link in chain.links:
        content = link.content
        if isinstance(content, StepLink):
            moved = moved or not content.skipped
        elif isinstance(content, BeginLink | CheckpointLink | ResumeLink):
            state = content.state
            if moved and before is not None:
                still = [name for name in ("exp_avg", "exp_avg_sq") if getattr(state, name) == getattr(before, name)]
                if still:
                    due = "others: updates were made since"
                    yield Mismatch(content.step, " and ".join(still), "those of the state before", due)
            if moved and state.exp_avg == state.exp_avg_sq:
                yield Mismatch(content.step, "exp_avg_sq", "that of exp_avg", "one of its own")
            before, moved = state, False


def other_model(begin: BeginLink, benchmark: Benchmark) -> Iterator[Mismatch]:
    """The tensors are those of the benchmark's model: as many values, and no name twice."""
    expected = num_parameters(benchmark.model)
    if sum(begin.sizes) != expected or min(begin.sizes, default=0) < 1:
        yield Mismatch(begin.step, "sizes of the tensors", f"{sum(begin.sizes):,} values", f"{expected:,} in the model")
    if len(set(begin.names)) != len(begin.names):
        yield Mismatch(begin.step, "names of the tensors", f"{len(begin.names)}", f"{len(set(begin.names))} different")
