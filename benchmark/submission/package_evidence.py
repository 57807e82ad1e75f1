"""The evidence of runs that were trained with --evidence: checked against their logs, and carried in the package.

benchmarks/gpt3/implementations/SYSTEM/evidence/result_N/{evidence.jsonl,config.json}, from which ``replay`` starts.
"""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmark.evidence.chain_links import EVIDENCE
from benchmark.evidence.companion import CONFIG, Companion, read_companion
from benchmark.evidence.evidence_checks import check_evidence
from benchmark.results.recorded_run import RecordedRun
from stage.errors import InputError


def require_evidence_holds(results: Sequence[RecordedRun]) -> list[str]:
    """A line for each result that has evidence. Raises InputError where evidence does not hold or fit its log.

    Nothing is trained again: that is what ``replay`` does.
    """
    told = []
    for number, result, companion in _with_evidence(results):
        chain = companion.chain
        found = check_evidence(companion, result.summary.log).deviations
        if found:
            more = f", and {len(found) - 1} more" if len(found) > 1 else ""
            raise InputError(f"{chain.path}: {found[0].line()}{more}; give the run as it was made, or without evidence")
        told.append(f"evidence of result_{number}: {len(chain.steps)} steps, last digest {chain.head}")
    return told


def copy_evidence(folder: Path, results: Sequence[RecordedRun]) -> None:
    """Make ``folder`` where there is any."""
    for number, result, companion in _with_evidence(results):
        place = folder / f"result_{number}"
        place.mkdir(parents=True)
        shutil.copyfile(companion.chain.path, place / EVIDENCE)
        shutil.copyfile(result.path.with_name(CONFIG), place / CONFIG)


def _with_evidence(results: Sequence[RecordedRun]) -> Iterator[tuple[int, RecordedRun, Companion]]:
    """Those whose folder is that of their run."""
    for number, result in enumerate(results):
        path = result.path.with_name(EVIDENCE)
        if result.config and path.is_file():
            yield number, result, read_companion(path.parent)
