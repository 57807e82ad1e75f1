"""Evidence beside a log: the chain of a run that was trained with --evidence, in its folder or in the package.

Nothing is trained again: ``replay`` does that (docs/evidence.md).
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import checksums
from benchmark.config.benchmarks import GPT3_175B
from benchmark.evidence.chain_links import EVIDENCE, Chain
from benchmark.evidence.companion import CONFIG, Companion, read_companion, read_config
from benchmark.evidence.evidence_checks import check_evidence
from benchmark.evidence.mismatch import Mismatch
from benchmark.results.subjects import BENCHMARK, ResultSet, SubmissionPackage
from benchmark.review.findings import Deviation, Run
from checksums.md5_list import read_list
from stage.errors import InputError
from stage.regular_files import is_regular

FOLDER = "evidence"
"""In benchmarks/gpt3/implementations/SYSTEM of a package, with a folder for each result."""
MOST_BYTES = 48 << 20
"""2,500 steps of 175B, six times those of a run; more takes too long in a review."""
MOST_TOLD = 12
"""Deviations of a run."""
AS_WRITTEN = "give log, chain and configuration as the run wrote them"
PUBLISHED_DATA = read_list(Path(checksums.__path__[0]) / "dataset_checksum.log")


@dataclass(frozen=True)
class Evidenced:
    """A result and what lies beside it."""

    run: Run
    folder: Path
    companion: Companion | None
    problem: str
    """Why it cannot be read; empty: it can."""


def contradictions(one: ResultSet) -> Iterator[Deviation]:
    for evidenced in _evidenced(one):
        run, companion = evidenced.run, evidenced.companion
        if companion is None:
            due = "the evidence of a run"
            yield Deviation(evidenced.folder / EVIDENCE, None, evidenced.problem, due, AS_WRITTEN)
            continue
        yield from _told(check_evidence(companion, run.log).contradictions, companion.chain, run)


def gaps(one: ResultSet) -> Iterator[Deviation]:
    """A full disk costs evidence, not the run; a chain that was cut looks the same."""
    for evidenced in _evidenced(one):
        if evidenced.companion is not None:
            found = check_evidence(evidenced.companion, evidenced.run.log).gaps
            yield from _told(found, evidenced.companion.chain, evidenced.run)


def left_out(one: ResultSet) -> Iterator[Deviation]:
    """The log has the digest of a chain that the package does not have."""
    if _package_of(one) is not None:
        yield from _without_chain(one)


def not_here(one: ResultSet) -> Iterator[Deviation]:
    """The same of a log by itself, which may have been copied from its folder."""
    if _package_of(one) is None:
        yield from _without_chain(one)


def fits(one: ResultSet) -> Iterator[Deviation]:
    """Evidence without a fault, which a reviewer can train again."""
    for evidenced in _evidenced(one):
        if evidenced.companion is not None and not check_evidence(evidenced.companion, evidenced.run.log).deviations:
            steps = len(evidenced.companion.chain.steps)
            found = f"evidence of {steps} steps, which fits the log"
            due = "a stretch of it trained again"
            mend = (
                f"python -m benchmark replay {evidenced.folder} --steps FIRST:LAST --log {evidenced.run.log.path.name}"
            )
            yield Deviation(evidenced.folder / EVIDENCE, None, found, due, mend)


def copied_links(one: ResultSet) -> Iterator[Deviation]:
    """Runs of other seeds read other samples from the first step on."""
    seen: dict[str, tuple[int, Path]] = {}
    for evidenced in _evidenced(one):
        if evidenced.companion is None:
            continue
        path, links = evidenced.folder / EVIDENCE, evidenced.companion.chain.steps
        known = [(step, seen[link.weights]) for step, link in sorted(links.items()) if link.weights in seen]
        if known:
            step, (other_step, other) = known[0]
            found = f"{len(known)} steps leave the weights of another run's, the first step {step}"
            due = f"weights of its own: these are those after step {other_step} of {other.parent.name}"
            yield Deviation(path, None, found, due, "give each run's own evidence")
        seen |= {link.weights: (step, path) for step, link in links.items() if link.weights not in seen}


def other_start(one: ResultSet) -> Iterator[Deviation]:
    """All runs of a result begin with one checkpoint and read one dataset."""
    begun = [(each.folder / EVIDENCE, each.companion.chain.begin) for each in _evidenced(one) if each.companion]
    whole = [(path, begin) for path, begin in begun if begin is not None and begin.step == 0]
    for path, begin in whole[1:]:
        first_path, first = whole[0]
        mend = "put runs of one configuration together; others belong to another system"
        if (begin.names, begin.state) != (first.names, first.state):
            due = f"that of {first_path.parent.name}"
            yield Deviation(path, 1, "another initial checkpoint, by its fingerprints", due, mend)
        other = [name for name, digest in begin.inputs.items() if first.inputs.get(name, digest) != digest]
        if other:
            due = f"that of {first_path.parent.name}"
            yield Deviation(path, 1, f"another file {other[0]!r:.80}, by its MD5 sum", due, mend)


def other_data(one: ResultSet) -> Iterator[Deviation]:
    """Data of the 175B benchmark are published with their sums."""
    for evidenced in _evidenced(one):
        begin = evidenced.companion.chain.begin if evidenced.companion is not None else None
        if begin is None or begin.benchmark.get("mlperf_name") != GPT3_175B.mlperf_name:
            continue
        for name, digest in begin.inputs.items():
            due = PUBLISHED_DATA.get(name)
            if due is not None and digest is not None and digest != due:
                mend = "train on the published data: python -m checksums verify tells which files differ"
                yield Deviation(evidenced.folder / EVIDENCE, 1, f"{name} with the MD5 sum {digest!s:.40}", due, mend)


def unread(package: SubmissionPackage) -> Iterator[Deviation]:
    """Chains that belong to no result: of runs that were left out, or under a name that nothing reads."""
    read = {folder for one in package.sets for path in one.files if (folder := _folder(one, path)) is not None}
    chains = [entry.path for entry in package.entries if entry.path.name.startswith(EVIDENCE)]
    strays = [path for path in chains if path.parent not in read or path.name != EVIDENCE]
    due = f"benchmarks/{BENCHMARK}/implementations/SYSTEM/{FOLDER}/result_N/{EVIDENCE} for each result"
    mend = "put it beside its run's, or say whose it is"
    for path in strays[:MOST_TOLD]:
        yield Deviation(path, None, f"evidence of no result, in {path.parent.name}/", due, mend)
    if len(strays) > MOST_TOLD:
        yield Deviation(package.path, None, f"{len(strays) - MOST_TOLD} more chains of no result", due, mend)


def _told(found: Sequence[Mismatch], chain: Chain, run: Run) -> Iterator[Deviation]:
    """In the line of the log that it is about, or in that of the chain."""
    for one in found[:MOST_TOLD]:
        path, line = (run.log.path, one.log_line) if one.log_line is not None else (chain.path, _line(chain, one.step))
        where = "" if one.step is None else f"step {one.step}: "
        due = one.found + (f" ({one.far})" if one.far else "")
        yield Deviation(path, line, f"{where}{one.what}: {one.recorded}", due, AS_WRITTEN)
    if len(found) > MOST_TOLD:
        yield Deviation(chain.path, None, f"{len(found) - MOST_TOLD} more deviations", "none", AS_WRITTEN)


def _line(chain: Chain, step: int | None) -> int | None:
    """Of the last link of a step."""
    return next((link.line for link in reversed(chain.links) if link.content.step == step), None)


def _without_chain(one: ResultSet) -> Iterator[Deviation]:
    with_chain = {evidenced.run.log.path for evidenced in _evidenced(one)}
    for run in one.runs:
        stamped = run.log.last(FOLDER)
        if stamped is not None and run.log.path not in with_chain:
            found = f"{FOLDER} {stamped.value!r:.20} without the chain that it is of"
            mend = f"send {EVIDENCE} and {CONFIG} of the run: the log was signed with them"
            yield Deviation(run.log.path, stamped.line, found, f"{EVIDENCE}, whose last digest it is", mend)


def _evidenced(one: ResultSet) -> Iterator[Evidenced]:
    """The results that have evidence; none of a log that could not be read."""
    for path, run in zip(one.files, one.runs, strict=True):
        folder = _folder(one, path)
        if folder is None or not os.path.lexists(folder / EVIDENCE) or not run.log.events:
            continue
        try:
            yield Evidenced(run, folder, _read(folder, _state(folder)), "")
        except (InputError, OSError) as error:
            yield Evidenced(run, folder, None, str(error).replace(f"{folder}/", ""))


@lru_cache(maxsize=3)
def _read(folder: Path, state: object) -> Companion:
    """Of a system's three runs each file is read once, though several rules look at it. ``state``: of the files."""
    return read_companion(folder, MOST_BYTES)


def _state(folder: Path) -> tuple[tuple[int, int], ...]:
    found = [path.stat() for path in (folder / EVIDENCE, folder / CONFIG) if path.exists()]
    return tuple((status.st_mtime_ns, status.st_size) for status in found)


def _folder(one: ResultSet, path: Path) -> Path | None:
    """Where the evidence of a result is looked for; None: what lies beside it is another run's."""
    package = _package_of(one)
    if package is not None:
        return package / "benchmarks" / BENCHMARK / "implementations" / path.parent.parent.name / FOLDER / path.stem
    if not is_regular(path.with_name(CONFIG)):
        return path.parent
    try:
        number = read_config(path.with_name(CONFIG)).get("result_number")
    except (InputError, OSError):
        return path.parent
    return path.parent if path.name == f"result_{number}.txt" else None


def _package_of(one: ResultSet) -> Path | None:
    """ORG of ORG/results/SYSTEM/gpt3."""
    folder = one.folder
    if folder is None or folder.name != BENCHMARK or folder.parent.parent.name != "results":
        return None
    return folder.parent.parent.parent
