"""What a chain must say whatever the run was: steps, samples, learning rates and times that follow from each other.

Needs neither data nor devices. Who makes up a whole chain passes all this; a replay shows it (docs/evidence.md).
"""

from collections.abc import Iterator, Sequence

from benchmark.config.run_config import Benchmark
from benchmark.config.schedule import learning_rate
from benchmark.evidence.chain_figures import moments_still, other_model, unlikely_figures
from benchmark.evidence.chain_links import Chain
from benchmark.evidence.chain_prints import batches_again, evaluations_apart, steps_without_effect, unreadable_prints
from benchmark.evidence.link_contents import (
    VERSION,
    BeginLink,
    CheckpointLink,
    EndLink,
    EvaluationLink,
    ResumeLink,
    StepLink,
)
from benchmark.evidence.mismatch import Mismatch
from benchmark.evidence.weight_motion import unlikely_motion

MOST_TOLD = 8
"""Deviations of a kind; one more says how many there are."""
MOST_SKIPPED = 1000
"""Steps of a run without a finite norm."""


def chain_deviations(chain: Chain, benchmark: Benchmark, *, went_back: bool = False) -> list[Mismatch]:
    """``benchmark``: of the run. ``went_back``: its log tells of ways back after spikes, which move the samples and may
    lower the learning rate: then these are not compared with the schedule."""
    begin = chain.begin
    if begin is None:
        return [Mismatch(None, "the chain", chain.problem or "no beginning", "a link that begins it")]
    found: list[Mismatch] = []
    if chain.problem is not None:
        found.append(Mismatch(None, "the chain", f"{len(chain.links)} links that hold", chain.problem))
    if begin.version != VERSION:
        found.append(Mismatch(None, "the chain's form", str(begin.version), f"{VERSION}, which this code can check"))
    if len(begin.names) != len(begin.sizes):
        found.append(Mismatch(None, "tensors", f"{len(begin.names)} names", f"{len(begin.sizes)} sizes"))
    found += _told(_out_of_order(chain))
    found += _told(_times(chain))
    if not went_back:
        found += _told(_against_schedule(chain.of(StepLink), benchmark, begin.step))
    prints = (
        unreadable_prints(chain),
        steps_without_effect(chain),
        unlikely_motion(chain),
        unlikely_figures(chain.of(StepLink)),
        moments_still(chain),
        other_model(begin, benchmark),
        batches_again(chain, benchmark.global_batch_size),
        evaluations_apart(chain),
    )
    found += [one for kind in prints for one in _told(kind)]
    return found + _told(_evaluations(chain, benchmark)) + _told(_checkpoints(chain))


def _told(deviations: Iterator[Mismatch]) -> list[Mismatch]:
    """The first of them, and how many more there are."""
    everything = list(deviations)
    if len(everything) > MOST_TOLD:
        more = Mismatch(None, f"{everything[0].what}, likewise", f"{len(everything) - MOST_TOLD} more", "as before")
        return [*everything[:MOST_TOLD], more]
    return everything


def _out_of_order(chain: Chain) -> Iterator[Mismatch]:
    """Every step follows the one before; what is told of a state is told when the run is there."""
    at = 0
    for link in chain.links:
        content = link.content
        if isinstance(content, BeginLink):
            if link.line > 1:
                yield Mismatch(content.step, "a second beginning", f"line {link.line}", "one, on line 1")
            at = content.step
        elif isinstance(content, StepLink):
            if content.step != at + 1:
                yield Mismatch(content.step, "number of the step", str(content.step), f"{at + 1} is due")
            at = content.step
        elif content.step != at:
            kind = type(content).__name__.removesuffix("Link").lower()
            yield Mismatch(content.step, f"place of the {kind}", f"after {content.step} steps", f"{at} steps done")
            at = content.step if isinstance(content, ResumeLink) else at
        if isinstance(content, EndLink) and link is not chain.links[-1]:
            yield Mismatch(content.step, "the end", f"line {link.line}", f"{len(chain.links) - link.line} links behind")


def _times(chain: Chain) -> Iterator[Mismatch]:
    before = 0
    for link in chain.links:
        if link.content.time_ms < before:
            yield Mismatch(link.content.step, "time", f"{link.content.time_ms} ms", f"{before} ms on the link before")
        before = link.content.time_ms


def _against_schedule(steps: Sequence[StepLink], benchmark: Benchmark, lost: int) -> Iterator[Mismatch]:
    """First sample and learning rate, to the last bit. ``lost``: steps before the first link, some of them perhaps
    skipped: as many as make the first rate right."""
    size = benchmark.global_batch_size
    skipped = next((some for some in range(min(lost, MOST_SKIPPED) + 1) if _rate_fits(steps, some, benchmark)), 0)
    for link in steps:
        before = (link.step - 1) * size
        if link.first_sample != benchmark.start_samples + before:
            due = f"{benchmark.start_samples + before} is due"
            yield Mismatch(link.step, "first sample", str(link.first_sample), due)
        rate = learning_rate(benchmark.start_samples + before - skipped * size, benchmark.optimizer)
        if link.learning_rate != rate:
            yield Mismatch(link.step, "learning rate", repr(link.learning_rate), f"{rate!r} by the schedule")
        skipped += link.skipped


def _rate_fits(steps: Sequence[StepLink], skipped: int, benchmark: Benchmark) -> bool:
    """Whether the first step's learning rate is that after so many skipped ones."""
    if not steps:
        return True
    done = (steps[0].step - 1 - skipped) * benchmark.global_batch_size
    return steps[0].learning_rate == learning_rate(benchmark.start_samples + done, benchmark.optimizer)


def _evaluations(chain: Chain, benchmark: Benchmark) -> Iterator[Mismatch]:
    """One at every interval that the run came to, and at its very end."""
    there = {link.step for link in chain.of(EvaluationLink)}
    last = max(chain.steps, default=0)
    done = last if chain.end is not None else last - 1  # the last step may have been the last thing before a kill
    for step in sorted(chain.steps):
        if step % benchmark.eval_interval == 0 and step <= done and step not in there:
            yield Mismatch(step, "evaluation", "none", f"due every {benchmark.eval_interval} steps")


def _checkpoints(chain: Chain) -> Iterator[Mismatch]:
    """A state that is saved, or gone on from, is the one that the step before it left."""
    for link in chain.links:
        content = link.content
        if isinstance(content, CheckpointLink | ResumeLink) and content.step in chain.steps:
            of_step = chain.steps[content.step]
            if content.state.weights != of_step.weights:
                kind = "checkpoint" if isinstance(content, CheckpointLink) else "state gone on from"
                yield Mismatch(content.step, f"weights of the {kind}", "others", "than the step left")
