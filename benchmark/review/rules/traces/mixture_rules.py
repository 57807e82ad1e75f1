"""Curves made of others: of the runs of a package, of those of a round, of published ones (``published/mixtures.py``).

Sources: docs/facts/mlperf_review.md 6.8, 6.10, 7.9.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

from benchmark.results.judged import GPT3
from benchmark.results.subjects import ResultSet, SubmissionPackage
from benchmark.review.findings import Deviation, Run
from benchmark.review.published.mixtures import Curve, curve, made_of
from benchmark.review.published.published_traces import published_traces
from benchmark.review.rules.copy_rules import OWN_RUN, is_published
from benchmark.review.rules.curve_rules import expected

MEND = "show the evaluations of the job as the code printed them: runs of their own have noise of their own"
MOST_BESIDE = 200
"""Runs of other packages of a round that a run is compared with."""


def made_of_others(one: ResultSet) -> Iterator[Deviation]:
    """Of the runs of its system, and of published ones."""
    yield from _mixtures(one.runs, (), made=True)


def like_others(one: ResultSet) -> Iterator[Deviation]:
    yield from _mixtures(one.runs, (), made=False)


def made_of_other_systems(package: SubmissionPackage) -> Iterator[Deviation]:
    """Of runs of two systems of the package; within one system ``made_of_others`` finds it."""
    for place, one in enumerate(package.sets):
        beside = [run for other in (*package.sets[:place], *package.sets[place + 1 :]) for run in other.runs]
        yield from _mixtures(one.runs, beside, made=True) if beside else ()


def made_of_other_submissions(runs: Sequence[Run], others: Sequence[Run]) -> Iterator[Deviation]:
    """Of runs of a submission of the same round."""
    yield from _mixtures(runs, others, made=True) if others else ()


def _mixtures(runs: Sequence[Run], beside: Sequence[Run], made: bool) -> Iterator[Deviation]:
    """What runs are made of; with runs ``beside`` them, only what takes one of those."""
    curves = [curve_of(run, run.log.path.name if not beside else "/".join(run.log.path.parts[-3:])) for run in runs]
    others = [one for run in beside[:MOST_BESIDE] if (one := curve_of(run, "/".join(run.log.path.parts[-5:])))]
    for place, (run, mine) in enumerate(zip(runs, curves, strict=True)):
        if mine is None or is_published(run):
            continue
        known = published_curves() if (run.judged or GPT3).official else ()
        before, after = (tuple(one for one in part if one) for part in (curves[:place], curves[place + 1 :]))
        found = made_of(mine, (*known, *before, *others), after)
        if found is not None and found.made == made and (not beside or any(one.name in found.what for one in others)):
            event = run.log.first("eval_accuracy")
            yield Deviation(run.log.path, None if event is None else event.line, found.what, OWN_RUN, MEND)


def curve_of(run: Run, name: str) -> Curve | None:
    """None for a run without a batch size, or with an evaluation that is no number."""
    size = run.global_batch_size
    known = [(one.tokens, one.log_perplexity) for one in run.evaluations]
    if size is None or any(tokens is None or value is None for tokens, value in known):
        return None
    usual = [expected(size, tokens or 0) for tokens, _ in known]
    return curve(name, [value or 0 for _, value in known], usual, published=False)


@lru_cache(maxsize=1)
def published_curves() -> tuple[Curve, ...]:
    """The distinct published runs."""
    found: dict[tuple[float, ...], Curve | None] = {}
    for run in published_traces():
        size = run.global_batch_size
        tokens = GPT3.tokens_per_evaluation(size)
        usual = [expected(size, tokens * number) for number in range(1, len(run.log_perplexities) + 1)]
        found.setdefault(run.log_perplexities, curve(f"the published {run.name}", run.log_perplexities, usual, True))
    return tuple(one for one in found.values() if one is not None)
