"""Check the input of ``package``: description, logs, their origin, and the evidence of runs trained with --evidence."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.benchmarks import BENCHMARKS
from benchmark.config.description_fields import marked_fields
from benchmark.config.number_formats import NUMBER_FORMATS, Precision
from benchmark.judging.results.judged import JUDGED, OFFICIAL, Judged
from benchmark.judging.results.recorded_run import RecordedRun, read_recorded_run
from benchmark.judging.results.system_description import MOST_BYTES
from benchmark.judging.review.rules.naming_rules import like_name
from benchmark.run_record.evidence_chain import broken_links, read_chain
from benchmark.run_record.file_names import CONFIG_FILE, EVIDENCE_FILE
from foundation.errors import InputError
from foundation.plain_text import shortened
from foundation.regular_files import UnfitFile, read_regular

IMPLEMENTATION = "pytorch"
"""Name of the folder with the code."""
Packaged = Mapping[str, tuple[Benchmark, Judged]]
"""Benchmarks that may be packaged, as they are trained and as they are judged, by the name in logs."""
SUBMITTED: Packaged = {
    benchmark.mlperf_name: (benchmark, OFFICIAL[benchmark.mlperf_name])
    for benchmark in BENCHMARKS.values()
    if benchmark.mlperf_name in OFFICIAL
}
"""The benchmarks that are trained here and submitted."""
MOST_SHOWN = 200
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
"""Pattern of a folder's name that is not hidden, is no path, and has no spaces, which the repository checker
refuses."""


def read_description(path: Path) -> dict[str, Any]:
    """Read a system description. Raises InputError unless every mark is filled in, under a name fit for a folder."""
    if not PLAIN_NAME.fullmatch(path.stem) or path.suffix != ".json" or path.stem == IMPLEMENTATION:
        expected = f"letters, digits and _.+- before .json, other than {IMPLEMENTATION}"
        raise InputError(f"{path}: its name becomes that of the system; expected {expected}; rename it")
    try:
        description = json.loads(read_regular(path, MOST_BYTES))
    except UnfitFile as error:
        raise InputError(f"{path}: {error}; give the file that describe-system wrote") from error
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; begin with python -m benchmark describe-system") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error}); begin with python -m benchmark describe-system") from error
    if not isinstance(description, dict):
        raise InputError(f"{path}: expected a JSON object; begin with python -m benchmark describe-system")
    marked = marked_fields(description)
    if marked:
        names = shortened(", ".join(marked), MOST_SHOWN)
        raise InputError(f"{path}: {len(marked)} fields are still to be filled in by hand: {names}")
    return description


def rehearsed(benchmark: Benchmark) -> Packaged:
    """Return a rehearsal as a benchmark that may be packaged."""
    return {benchmark.mlperf_name: (benchmark, JUDGED[benchmark.mlperf_name])}


def read_results(paths: Sequence[Path], packaged: Packaged = SUBMITTED) -> list[RecordedRun]:
    """Read different logs of one benchmark, as many as its rules ask for. Raises InputError for anything else."""
    results = [read_recorded_run(path) for path in paths]
    for number, result in enumerate(results):
        if result.path.is_symlink():
            raise InputError(f"{result.path}: a link; a package holds files of the runs' folders alone; give the file")
        if not result.summary.log.events:
            raise InputError(f"{result.path}: no MLLOG record in it; give the result_N.txt that a run wrote")
        name, first_name = result.summary.benchmark, results[0].summary.benchmark
        if name not in packaged:
            names = " and ".join(packaged)
            raise InputError(f"{result.path}: a run of {name!r}, but only runs of {names} make a submission")
        if name != first_name:
            raise InputError(
                f"{result.path}: a run of {name}, but {results[0].path} is one of {first_name}; package each"
            )
        for earlier in results[:number]:
            if result.path.read_bytes() == earlier.path.read_bytes():
                raise InputError(f"{result.path}: the same log as {earlier.path}; give different runs")
    counts = {name: judged.runs for name, (_, judged) in packaged.items()}
    if not results or len(results) != counts[str(results[0].summary.benchmark)]:
        expected = ", or ".join(f"{count} of {name}" for name, count in counts.items())
        raise InputError(f"--results: {len(results)} runs given, but a submission has {expected}")
    return results


def benchmark_of(results: Sequence[RecordedRun], packaged: Packaged = SUBMITTED) -> tuple[Benchmark, Judged]:
    """Return the benchmark of the results, as it is trained and as it is judged."""
    return packaged[str(results[0].summary.benchmark)]


def precision_of(results: Sequence[RecordedRun], option: Precision | None) -> Precision:
    """Return the precision of the runs: from their configurations, or else from the user.

    Raises InputError if neither names it, or if they contradict each other.
    """
    precisions: set[Precision] = set() if option is None else {option}
    for result in results:
        recorded = result.config.get("precision")
        named = next((name for name in NUMBER_FORMATS if name == recorded), None)
        if named is None and recorded is not None:
            words = f"precision {shortened(repr(recorded), MOST_SHOWN)} in {CONFIG_FILE}"
            raise InputError(f"{result.path}: {words}; expected {' or '.join(NUMBER_FORMATS)}")
        precisions |= set() if named is None else {named}
    if len(precisions) != 1:
        words = " and ".join(sorted(precisions)) or "in no config.json of the runs"
        mend = f"package runs of one precision, and give --precision {' or '.join(NUMBER_FORMATS)} for logs alone"
        raise InputError(f"{results[0].path}: the precision of the runs is {words}; {mend}")
    return precisions.pop()


def require_same_submitter(
    org: str, system_json: Path, description: Mapping[str, Any], results: Sequence[RecordedRun]
) -> None:
    """Raise InputError if --org is another organisation than a log or the description names.

    Case, punctuation and a longer form of the name do not matter: Intel-HabanaLabs is Habana.
    """
    names = [(str(system_json), "submitter", description.get("submitter"), "write it there, or give that --org")]
    for result in results:
        event = result.summary.log.first("submission_org")
        if event is not None:
            mend = "give that --org, or train again with another --submission-org: logs must not be edited"
            names.append((f"{result.path}:{event.line}", event.key, event.value, mend))
    for location, field, name, mend in names:
        if not isinstance(name, str) or not like_name(org, name):
            raise InputError(f"{location}: {field} {shortened(repr(name), MOST_SHOWN)}, but --org {org}; {mend}")


def require_same_origin(
    results: Sequence[RecordedRun], commit: str | None, code: Sequence[Path], *, other_code: bool
) -> None:
    """Raise InputError if runs read other data than the first, or if other code made them than the packaged code.

    The packaged files are ``code``. With ``other_code``, the user says that other code made the results.
    """
    names = {path.as_posix() for path in code}
    for result in results:
        digests, first_digests = result.digests, results[0].digests
        for name in sorted(digests.keys() & first_digests.keys()):
            if None not in (digests[name], first_digests[name]) and digests[name] != first_digests[name]:
                raise InputError(
                    f"{result.path}: {name} has MD5 {digests[name]}, but {first_digests[name]} in {results[0].path}; "
                    "the runs of a submission read the same data and checkpoint"
                )
        made_by = result.environment.get("commit")
        if made_by is not None and made_by != commit and not other_code:
            raise InputError(
                f"{result.path}: made by commit {made_by}, but the code to be packaged is {commit}; check out the first"
            )
        for event in () if other_code else result.summary.log.events:
            file = event.metadata.get("file")
            if isinstance(file, str) and file not in names:
                raise InputError(
                    f"{result.path}:{event.line}: written by {shortened(file, MOST_SHOWN)}, which is no file of the "
                    "code to be packaged; if other code made these results, give --other-code, and the package says so"
                )


def require_evidence_holds(results: Sequence[RecordedRun]) -> list[str]:
    """Return a line for each run that has evidence. Raises InputError if a link of the evidence does not hold.

    Only ``replay`` trains steps again; this check does not.
    """
    lines = []
    for number, result in enumerate(results):
        path = result.path.with_name(EVIDENCE_FILE)
        if not result.config or not path.is_file():
            continue
        chain = read_chain(path)
        if faults := broken_links(chain, result.path):
            suffix = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
            raise InputError(f"{path}: {faults[0].text()}{suffix}; give the run as it was made, or without evidence")
        lines.append(f"evidence of result_{number}: {chain.links[-1].record.step} steps, last digest {chain.head}")
    return lines


def notes_on_origin(results: Sequence[RecordedRun], commit: str | None, *, other_code: bool) -> Iterator[str]:
    """Yield facts that the submitter should know, though nobody refuses them."""
    without = [result.path for result in results if not result.inputs]
    if without:
        yield f"no manifests of data and checkpoint: {without[0]} is not in the folder of its run"
    if other_code:
        yield "the code packaged did not make these results; add the code that did"
    if commit is None or commit.endswith("-dirty"):
        yield "the code packaged has changes that are in no commit; commit them and package again"
