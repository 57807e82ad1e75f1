"""Runs that are another run in disguise: of the same system, another system, another submitter, or published before.

What makes two runs alike: ``fingerprint.py``. Sources: docs/facts/mlperf_review.md 6.8, 7.9.
"""

import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from benchmark.results.subjects import ResultSet, SubmissionPackage
from benchmark.review.findings import Deviation, Run
from benchmark.review.published.fingerprint import (
    Collection,
    Fingerprint,
    Likeness,
    collection,
    likeness,
    of_published,
    of_run,
)
from benchmark.review.published.published_traces import DECIMALS, PublishedTrace, published_traces

EMPTY_WORDS = {
    "inc",
    "corp",
    "corporation",
    "ltd",
    "llc",
    "gmbh",
    "co",
    "company",
    "systems",
    "cloud",
    "the",
    "of",
    "and",
}
"""That say nothing of which organisation it is."""
OWN_RUN = "a run of its own"
EXPLAIN = "say how two runs came to agree so closely; show the whole output of both"


def copied_in_system(runs: Sequence[Run]) -> Iterator[Deviation]:
    """The same run under two names."""
    for run, other, alike in _pairs(runs):
        if alike.copied:
            yield _deviation(run, alike, other.log.path.name, "submit three different runs")


def alike_in_system(runs: Sequence[Run]) -> Iterator[Deviation]:
    for run, other, alike in _pairs(runs):
        if not alike.copied:
            yield _deviation(run, alike, other.log.path.name, EXPLAIN)


def copied_in_package(package: SubmissionPackage) -> Iterator[Deviation]:
    """One run submitted for two systems; within one system the rules about its runs find it."""
    for run, other, alike in _across_systems(package):
        if alike.copied:
            name = str(other.log.path.relative_to(package.path))
            yield _deviation(run, alike, name, "submit a run for one system only")


def alike_in_package(package: SubmissionPackage) -> Iterator[Deviation]:
    for run, other, alike in _across_systems(package):
        if not alike.copied:
            yield _deviation(run, alike, str(other.log.path.relative_to(package.path)), EXPLAIN)


def copied_from_others(runs: Sequence[Run], others: Sequence[Run]) -> Iterator[Deviation]:
    """Runs of one submission that are those of other ones reviewed with it.

    A published log that lies in several published folders is the committee's business: see :func:`published_itself`.
    """
    theirs = collection([of_run(other) for other in others])
    for run in runs:
        for other, alike in zip(others, likeness(of_run(run), theirs), strict=True):
            if alike is not None and alike.copied and not _both_published(run, other):
                yield _deviation(run, alike, "/".join(other.log.path.parts[-5:]), "submit a run once")
                break


def published_copy(one: ResultSet) -> Iterator[Deviation]:
    """A published run whose times, values or names were changed."""
    for run in one.runs:
        for published, alike in _like_published(run):
            if alike.copied and not _is(run, published):
                yield _deviation(run, alike, f"the published {published.name}", "submit runs of your own")
                break


def published_alike(one: ResultSet) -> Iterator[Deviation]:
    for run in one.runs:
        for published, alike in _like_published(run):
            if not alike.copied:
                yield _deviation(run, alike, f"the published {published.name}", EXPLAIN)
                break


def published_under_other_name(one: ResultSet) -> Iterator[Deviation]:
    """A published log as it was, beside a description of another submitter."""
    submitter = None if one.system is None else one.system.string("submitter")
    for run in one.runs:
        same = _published(run)
        if same and submitter is not None and not any(like_name(submitter, found.submitter) for found in same):
            alike = Likeness("all records", copied=True)
            name = f"{same[0].name}, a result of {same[0].submitter}"
            yield _deviation(run, alike, name, "submit runs of your own")


def published_itself(one: ResultSet) -> Iterator[Deviation]:
    """Once per system."""
    found = [(run, same[0]) for run in one.runs if (same := _published(run))]
    for run, first in found[:1]:
        mend = "nothing to mend: logs of an earlier round may be submitted again with the same description"
        alike = Likeness(f"all records in {len(found)} of {len(one.runs)} runs", copied=True)
        yield _deviation(run, alike, f"the published {first.name}", mend)


def like_name(one: str, other: str) -> bool:
    """Whether two names of an organisation can mean the same: one holds the other, a word in common, initials."""
    words = [[word for word in re.split(r"[^a-z0-9]+", name.lower()) if word] for name in (one, other)]
    joined = ["".join(found) for found in words]
    if min(map(len, joined)) < 2:
        return joined[0] == joined[1] != ""
    initials = ["".join(word[0] for word in found) for found in words]
    common = {word for word in words[0] if len(word) > 1} & set(words[1]) - EMPTY_WORDS
    return bool(common) or any(
        joined[a] in joined[b] or (initials[b] in words[a][:1] and len(words[b]) > 1) for a, b in ((0, 1), (1, 0))
    )


def _pairs(runs: Sequence[Run]) -> Iterator[tuple[Run, Run, Likeness]]:
    """Every run with the first earlier one that it is a copy of, else with the first that it is like."""
    prints = [of_run(run) for run in runs]
    for place, run in enumerate(runs):
        found = [
            (other, alike)
            for other, alike in zip(runs, likeness(prints[place], collection(prints[:place])), strict=False)
            if alike is not None
        ]
        if found:
            other, alike = next((pair for pair in found if pair[1].copied), found[0])
            yield run, other, alike


def _across_systems(package: SubmissionPackage) -> Iterator[tuple[Run, Run, Likeness]]:
    """Runs and earlier runs of other systems that they are like."""
    for place, one in enumerate(package.sets):
        earlier = [run for before in package.sets[:place] for run in before.runs]
        theirs = collection([of_run(run) for run in earlier])
        for run in one.runs if earlier else ():
            for other, alike in zip(earlier, likeness(of_run(run), theirs), strict=True):
                if alike is not None:
                    yield run, other, alike
                    break


def _like_published(run: Run) -> Iterator[tuple[PublishedTrace, Likeness]]:
    if run.judged is not None and not run.judged.official:
        return
    for published, alike in zip(published_traces(), _published_likeness(of_run(run)), strict=True):
        if alike is not None:
            yield published, alike


@lru_cache(maxsize=1)
def _published_collection() -> Collection:
    return collection([of_published(run) for run in published_traces()])


@lru_cache(maxsize=64)
def _published_likeness(one: Fingerprint) -> tuple[Likeness | None, ...]:
    if not any(map(math.isfinite, one.log_perplexities)):
        return (None,) * len(published_traces())
    return tuple(likeness(one, _published_collection()))


def _published(run: Run) -> list[PublishedTrace]:
    """The published runs that a log is, to the millisecond: several where one log was published more than once."""
    return [published for published, alike in _like_published(run) if alike.copied and _is(run, published)]


def _is(run: Run, published: PublishedTrace) -> bool:
    mine = of_run(run)
    return (
        run.run_start_ms == published.run_start_ms
        and (run.org, run.platform) == (published.org, published.platform)
        and run.global_batch_size == published.global_batch_size
        and mine.intervals_ms == tuple(map(float, published.intervals_ms[1:]))
        and tuple(round(value, DECIMALS) for value in mine.log_perplexities) == published.log_perplexities
    )


def _both_published(run: Run, other: Run) -> bool:
    return is_published(run) and is_published(other)


def is_published(run: Run) -> bool:
    """Whether it is a published log, to the millisecond."""
    return bool(_published(run))


def _deviation(run: Run, alike: Likeness, name: str, mend: str) -> Deviation:
    event = run.log.first("eval_accuracy")
    return Deviation(run.log.path, None if event is None else event.line, f"{alike.what}, as {name}", OWN_RUN, mend)
