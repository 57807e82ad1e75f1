"""Evidence beside a log: the chain of a run that was trained with --evidence, in its folder or in the package.

A run without evidence, or with a part of it, is as good as any other. Nothing is trained again: ``replay`` does that.
"""

from collections.abc import Iterator
from pathlib import Path

from benchmark.evidence.chain import EVIDENCE, Chain, broken_links, gaps, read_chain
from benchmark.results.subjects import BENCHMARK, ResultSet
from benchmark.review.findings import Deviation
from stage.errors import InputError

FOLDER = "evidence"
"""In benchmarks/gpt3/implementations/SYSTEM of a package, with a folder for each result."""
MOST_TOLD = 12
"""Links of a run that are named."""


def broken(one: ResultSet) -> Iterator[Deviation]:
    """Links that no honest run leaves."""
    for log, path in _with_evidence(one):
        try:
            faults = broken_links(read_chain(path), log)
        except (InputError, OSError):
            continue  # which the other rule tells
        for fault in faults[:MOST_TOLD]:
            where = "" if fault.step is None else f"step {fault.step}: "
            mend = "give log and evidence as the run wrote them"
            yield Deviation(path, fault.line, f"{where}{fault.what}: {fault.recorded}", fault.found, mend)


def told(one: ResultSet) -> Iterator[Deviation]:
    """What evidence there is, and what it does not cover: a full disk costs evidence, not the run."""
    for log, path in _with_evidence(one):
        try:
            chain = read_chain(path)
            found = "; ".join(gaps(chain)) or f"evidence of {_steps(chain)} steps"
            mend = f"python -m benchmark replay {path.parent} --steps FIRST:LAST --log {log.name}"
        except (InputError, OSError) as error:
            found, mend = f"evidence that is not read: {error}".replace(f"{path.parent}/", ""), "nothing is asked of it"
        yield Deviation(path, None, found, "a stretch of the run trained again, if its figures are in doubt", mend)


def _steps(chain: Chain) -> int:
    return chain.links[-1].record.step if chain.links else 0


def _with_evidence(one: ResultSet) -> Iterator[tuple[Path, Path]]:
    """Logs that could be read, and the chains that are theirs."""
    for path, run in zip(one.files, one.runs, strict=True):
        folder = path.parent
        if folder.name == BENCHMARK and folder.parent.parent.name == "results":  # ORG/results/SYSTEM/gpt3
            code = folder.parents[2] / "benchmarks" / BENCHMARK / "implementations" / folder.parent.name
            folder = code / FOLDER / path.stem
        elif len(list(folder.glob("result_*.txt"))) > 1:
            continue  # whose evidence it is nobody knows
        if (folder / EVIDENCE).is_file() and run.log.events:
            yield path, folder / EVIDENCE
