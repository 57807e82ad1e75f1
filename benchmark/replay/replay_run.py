"""``benchmark replay``: a stretch of a stranger's run again, and all that its folder says about itself checked."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from benchmark.config.benchmarks import BENCHMARKS
from benchmark.config.run_config import RunConfig
from benchmark.evidence.chain_links import Chain
from benchmark.evidence.companion import read_companion
from benchmark.evidence.evidence_checks import check_evidence
from benchmark.evidence.fingerprint_match import (
    TOLERANCES,
    Tensors,
    Tolerance,
    evaluation_deviations,
    figure_apart,
    state_deviations,
    step_deviations,
    weight_distances,
)
from benchmark.evidence.link_contents import EvaluationLink, Machinery, ResumeLink, StepLink
from benchmark.evidence.mismatch import Mismatch
from benchmark.replay.recorded_config import Replacements, log_of, recorded_config
from benchmark.replay.recounted_samples import sample_deviations
from benchmark.replay.replay_ranks import replay_on_ranks
from benchmark.replay.replay_result import ReplayResult
from benchmark.replay.replayed_steps import ReplayedSteps, Stretch
from benchmark.replay.starting_point import parse_steps, progress_at, recorded_state, start_of
from benchmark.results.mllog import read_log
from benchmark.training.checkpoints.checkpoint_folder import progress_as_json
from benchmark.training.engine.distributed import read_environment
from benchmark.training.engine.run_progress import starting_progress
from benchmark.training.guards.witness.state_prints import parameter_sizes
from benchmark.training.inputs import require_inputs

MAY_VARY = ("global_batch_size", "train_samples", "target_log_perplexity", "samples_to_target", "optimizer")
"""Fields of a benchmark that its rules leave to the submitter, or that change nothing."""


@dataclass(frozen=True)
class ReplayOptions:
    """See the command."""

    run_dir: Path
    steps: str
    given: Replacements
    log: Path | None = None
    without_training: bool = False


def replay(options: ReplayOptions) -> ReplayResult | None:
    """Check and compare; None on ranks other than 0.

    Raises InputError for input from which nothing can be told. What is told and does not hold is a deviation.
    """
    environment = read_environment()
    first, last = parse_steps(options.steps)
    companion = read_companion(options.run_dir)
    chain = companion.chain
    config = recorded_config(options.run_dir, options.given)
    start = None if options.without_training else start_of(options.run_dir, chain, first, last)
    log = read_log(log_of(options.run_dir, options.log, config.result_number))
    deviations = check_evidence(companion, log).deviations
    notes = [*_notes(chain, config)]
    sizes = parameter_sizes(config.benchmark.model)
    if chain.begin is None or (chain.begin.names, chain.begin.sizes) != (tuple(sizes), tuple(sizes.values())):
        deviations.append(Mismatch(None, "tensors of the chain", "others", "than the model has; nothing was trained"))
        return ReplayResult(str(options.run_dir), first, last, None, 0, False, None, deviations, notes, {}, None, None)
    if environment.rank == 0:
        require_inputs(config.data, config.benchmark.model.vocab_size, checkpoint=start == 0)
    if start is None:
        links = [chain.steps[step] for step in range(max(1, first), last + 1) if step in chain.steps]
        deviations += sample_deviations(config, links)
        return _result(options, chain, links, deviations, notes)
    progress = progress_at(options.run_dir, start) if start else starting_progress(config.benchmark, chain.begin.seed)
    deviations += _progress_deviations(config, progress.seed, progress.start_samples, chain)
    evaluations = [link.step for link in chain.of(EvaluationLink) if start < link.step <= last]
    stretch = Stretch(config, start, progress_as_json(progress), last, evaluations)
    found = replay_on_ranks(stretch, environment)
    if found is None:
        return None
    why = _why_not_exact(chain, start, last, found.machinery)
    tolerance = None if why is None else TOLERANCES[config.precision]
    comparison = _Comparison(chain, start, tolerance, Tensors(chain.begin.names, chain.begin.sizes))
    deviations += comparison.deviations(found)
    links = [chain.steps[step] for step in range(start + 1, last + 1) if step in chain.steps]
    return _result(options, chain, links, deviations, notes, start, why, found, comparison.farthest(found))


class _Comparison:
    """Of the links of a stretch with those of its replay."""

    def __init__(self, chain: Chain, start: int, tolerance: Tolerance | None, tensors: Tensors) -> None:
        self._chain, self._start, self._tolerance, self._tensors = chain, start, tolerance, tensors
        self._evaluations = {link.step: link for link in chain.of(EvaluationLink)}

    def deviations(self, found: ReplayedSteps) -> Iterator[Mismatch]:
        recorded = recorded_state(self._chain, self._start)
        if recorded is None:
            yield Mismatch(self._start, "the checkpoint", "no link", "a checkpoint that the chain does not know")
        else:
            yield from state_deviations(self._start, recorded, found.state, self._tensors)
        for one, link, moved in self._pairs(found):
            yield from step_deviations(one, link, self._tensors, self._tolerance, moved)
        for other in found.links:
            if isinstance(other, EvaluationLink) and other.step in self._evaluations:
                yield from evaluation_deviations(self._evaluations[other.step], other, self._tolerance)

    def farthest(self, found: ReplayedSteps) -> dict[str, float]:
        """In the units of the tolerances."""
        far = dict.fromkeys(("loss", "grad norm", "weights", "log perplexity"), 0.0)
        for one, link, moved in self._pairs(found):
            far["loss"] = max(far["loss"], figure_apart(one.loss, link.loss))
            far["grad norm"] = max(far["grad norm"], figure_apart(one.grad_norm, link.grad_norm))
            far["weights"] = max(far["weights"], float(weight_distances(one, link, self._tensors, moved).max()))
        for other in found.links:
            if isinstance(other, EvaluationLink) and other.step in self._evaluations:
                apart = figure_apart(self._evaluations[other.step].log_perplexity, other.log_perplexity)
                far["log perplexity"] = max(far["log perplexity"], apart)
        return far

    def _pairs(self, found: ReplayedSteps) -> Iterator[tuple[StepLink, StepLink, float]]:
        """Each step as recorded and as replayed, and the sum of the learning rates up to it."""
        moved = 0.0
        for link in found.links:
            if isinstance(link, StepLink):
                moved += link.learning_rate
                if link.step in self._chain.steps:
                    yield self._chain.steps[link.step], link, moved


def _result(
    options: ReplayOptions,
    chain: Chain,
    links: Sequence[StepLink],
    deviations: Sequence[Mismatch],
    notes: Sequence[str],
    start: int | None = None,
    why: str | None = None,
    found: ReplayedSteps | None = None,
    farthest: Mapping[str, float] | None = None,
) -> ReplayResult:
    first, last = parse_steps(options.steps)
    recorded = [(b.time_ms - a.time_ms) / 1000 for a, b in pairwise(links)]
    return ReplayResult(
        run_dir=str(options.run_dir),
        first=first,
        last=last,
        start=start,
        compared_steps=len(links),
        exact=found is not None and why is None,
        why_not_exact=why,
        deviations=tuple(deviations),
        notes=tuple(notes),
        largest_distances=dict(farthest or {}),
        recorded_step_s=statistics.median(recorded) if recorded else None,
        replayed_step_s=statistics.median(found.seconds) if found is not None and found.seconds else None,
    )


def _progress_deviations(config: RunConfig, seed: int, start_samples: int, chain: Chain) -> Iterator[Mismatch]:
    """The checkpoint's own account of where the run was."""
    assert chain.begin is not None
    pairs = (("seed", seed, chain.begin.seed), ("start_samples", start_samples, config.benchmark.start_samples))
    for name, recorded, due in pairs:
        if recorded != due:
            yield Mismatch(None, f"{name} of the checkpoint's progress.json", str(recorded), f"{due} in the chain")


def _why_not_exact(chain: Chain, start: int, last: int, here: Machinery) -> str | None:
    """What differs between the run's machinery and this one's; None where the same bits are due."""
    now = asdict(here)
    for step in range(start + 1, last + 1):
        begun = chain.started_with(step)
        if begun is None:  # that there is no such step is told
            continue
        then = asdict(begun.machinery)
        for kind in ("layout", "kernels"):
            for name in dict.fromkeys((*then[kind], *now[kind])):
                one, other = then[kind].get(name), now[kind].get(name)
                if one != other:
                    return f"{name} was {one!s:.60}, is {other!s:.60}"
    return None if here.kernels.get("deterministic") else "kernels that do not repeat (--deterministic was not given)"


def _notes(chain: Chain, config: RunConfig) -> Iterator[str]:
    """For the reviewer to judge."""
    known = BENCHMARKS.get(config.benchmark.name)
    if known is None:
        yield f"the run is of {config.benchmark.name!r}, which is none of {', '.join(BENCHMARKS)}"
    else:
        ours, theirs = asdict(known), asdict(config.benchmark)
        other = [name for name in ours if name not in MAY_VARY and ours[name] != theirs[name]]
        if other:
            yield f"the run is called {known.name}, but differs from it in {', '.join(other)}"
    if chain.torn:
        yield "the last line of the evidence is torn, as a killed run leaves it"
    for link in chain.of(ResumeLink):
        dropped = "" if link.dropped is None else f"; {link.dropped.links} links behind it were dropped"
        yield f"the run went on from the checkpoint after {link.step} steps{dropped}"
    if chain.end is None:
        yield "the chain has no end: the run goes on, or was killed"
