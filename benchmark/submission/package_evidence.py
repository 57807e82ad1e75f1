"""Check the evidence of runs trained with --evidence against their logs, and copy it into the package.

The copy is benchmarks/BENCHMARK/implementations/SYSTEM/evidence/result_N/evidence.jsonl, from which ``replay`` starts.
"""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmark.evidence.chain import EVIDENCE, broken_links, read_chain
from benchmark.results.recorded_run import RecordedRun
from stage.errors import InputError


def require_evidence_holds(results: Sequence[RecordedRun]) -> list[str]:
    """Return a line for each result that has evidence. Raises InputError if a link of the evidence does not hold.

    Only ``replay`` trains steps again; this check does not.
    """
    told = []
    for number, result, path in _with_evidence(results):
        chain = read_chain(path)
        if found := broken_links(chain, result.path):
            more = f", and {len(found) - 1} more" if len(found) > 1 else ""
            raise InputError(f"{path}: {found[0].text()}{more}; give the run as it was made, or without evidence")
        steps = chain.links[-1].record.step
        told.append(f"evidence of result_{number}: {steps} steps, last digest {chain.head}")
    return told


def copy_evidence(folder: Path, results: Sequence[RecordedRun]) -> None:
    """Copy the evidence to ``folder``, which is made if there is any evidence."""
    for number, _, path in _with_evidence(results):
        place = folder / f"result_{number}"
        place.mkdir(parents=True)
        shutil.copyfile(path, place / EVIDENCE)


def _with_evidence(results: Sequence[RecordedRun]) -> Iterator[tuple[int, RecordedRun, Path]]:
    """Yield number, result and evidence of each result that lies in its run folder."""
    for number, result in enumerate(results):
        path = result.path.with_name(EVIDENCE)
        if result.config and path.is_file():
            yield number, result, path
