"""The evidence of runs that were trained with --evidence: checked against their logs, and carried in the package.

benchmarks/gpt3/implementations/SYSTEM/evidence/result_N/{evidence.jsonl,config.json}, from which ``replay`` starts.
"""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmark.config.run_config import Benchmark
from benchmark.config.typed_json import dataclass_from_json
from benchmark.evidence.chain_and_log import log_deviations, went_back
from benchmark.evidence.chain_checks import chain_deviations
from benchmark.evidence.chain_links import EVIDENCE, Chain, read_chain
from benchmark.results.recorded_run import RecordedRun
from stage.errors import InputError

CONFIG = "config.json"


def require_evidence_holds(results: Sequence[RecordedRun]) -> list[str]:
    """A line for each result that has evidence. Raises InputError where evidence does not hold or fit its log.

    Nothing is trained again: that is what ``replay`` does.
    """
    told = []
    for number, result, chain in _with_evidence(results):
        where = str(result.path.with_name(CONFIG))
        benchmark = dataclass_from_json(Benchmark, result.config.get("benchmark"), f"{where}: benchmark")
        log = result.summary.log
        found = chain_deviations(chain, benchmark, went_back=went_back(log)) + log_deviations(chain, log, benchmark)
        if found:
            more = f", and {len(found) - 1} more" if len(found) > 1 else ""
            raise InputError(f"{chain.path}: {found[0].line()}{more}; give the run as it was made, or without evidence")
        told.append(f"evidence of result_{number}: {len(chain.steps)} steps, last digest {chain.head}")
    return told


def copy_evidence(folder: Path, results: Sequence[RecordedRun]) -> None:
    """Make ``folder`` where there is any."""
    for number, result, chain in _with_evidence(results):
        place = folder / f"result_{number}"
        place.mkdir(parents=True)
        shutil.copyfile(chain.path, place / EVIDENCE)
        shutil.copyfile(result.path.with_name(CONFIG), place / CONFIG)


def _with_evidence(results: Sequence[RecordedRun]) -> Iterator[tuple[int, RecordedRun, Chain]]:
    """Those whose folder is that of their run, with its chain."""
    for number, result in enumerate(results):
        path = result.path.with_name(EVIDENCE)
        if result.config and path.is_file():
            yield number, result, read_chain(path)
