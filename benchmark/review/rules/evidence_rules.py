"""Check the evidence beside a log: the chain of a run trained with --evidence, in its folder or in the package.

A run without evidence, or with part of it, is as good as any other. Only ``replay`` trains steps again; this check does
not.
"""

from collections.abc import Iterator

from benchmark.evidence.chain import EVIDENCE, broken_links, gaps, read_chain
from benchmark.results.subjects import ResultSet
from benchmark.review.findings import Deviation
from stage.errors import InputError

FOLDER = "evidence"
"""Folder in benchmarks/BENCHMARK/implementations/SYSTEM of a package, with a subfolder for each result."""
MOST_TOLD = 12
"""Largest number of a run's links that are named."""


def evidence(one: ResultSet) -> Iterator[Deviation]:
    """Check the links of the evidence: links that no honest run leaves are errors. The extent of the evidence is a
    note, since a full disk costs evidence, not the run."""
    for log, run in zip(one.files, one.runs, strict=True):
        folder = log.parent
        if one.package is not None:
            package, system = folder.parents[2], folder.parent.name
            folder = package / "benchmarks" / folder.name / "implementations" / system / FOLDER / log.stem
        elif len(list(folder.glob("result_*.txt"))) > 1:
            continue  # whose evidence it is nobody knows
        path = folder / EVIDENCE
        if not path.is_file() or not run.log.events:
            continue
        due = f"to train a stretch again: python -m benchmark replay {folder} --steps FIRST:LAST --log {log.name}"
        try:
            chain = read_chain(path)
            faults = broken_links(chain, log)
        except (InputError, OSError) as error:
            found = f"evidence that is not read: {error}".replace(f"{folder}/", "")
            yield Deviation(path, None, found, "nothing", "note")
            continue
        for fault in faults[:MOST_TOLD]:
            where = "" if fault.step is None else f"step {fault.step}: "
            yield Deviation(path, fault.line, f"{where}{fault.what}: {fault.recorded}", fault.found)
        steps = chain.links[-1].record.step if chain.links else 0
        yield Deviation(path, None, "; ".join(gaps(chain)) or f"evidence of {steps} steps", due, "note")
