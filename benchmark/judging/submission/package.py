"""Run ``package``: make the folder of a submission from the results of a benchmark, a system description and the code.

systems/SYSTEM.json   results/SYSTEM/BENCHMARK/result_N.txt   benchmarks/BENCHMARK/implementations/{CODE,SYSTEM}/

The layout is that of docs/facts/mlperf_review.md 4.1. The folder has its final name only when ``review`` has passed it.
"""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.number_formats import Precision
from benchmark.judging.results.recorded_run import RecordedRun, settings
from benchmark.judging.results.subjects import SubmissionPackage
from benchmark.judging.review.findings import Finding
from benchmark.judging.review.verdict import SubjectReview, review_of
from benchmark.judging.submission.package_documents import Contents, write_documents
from benchmark.judging.submission.package_inputs import (
    IMPLEMENTATION,
    PLAIN_NAME,
    SUBMITTED,
    benchmark_of,
    notes_on_origin,
    precision_of,
    read_description,
    read_results,
    rehearsed,
    require_evidence_holds,
    require_same_origin,
    require_same_submitter,
)
from benchmark.judging.submission.published_files import (
    copy_inside,
    json_inside,
    published_config,
    without_addresses,
)
from benchmark.run_record.events.log_in_folder import MOST_CONFIG_BYTES
from benchmark.run_record.file_names import CONFIG_FILE, EVIDENCE_FILE, MANIFESTS_FOLDER, result_name
from benchmark.run_record.input_manifests import MOST_MANIFEST_BYTES, copied_manifests
from foundation.disk_answers import is_there
from foundation.errors import InputError
from foundation.git import REPOSITORY, commit_of, tracked_files
from foundation.outputs.publish import published_folder
from foundation.regular_files import walk

NOT_NEEDED_TO_RUN = ("tests",)


def make_package(
    org: str,
    system_json: Path,
    results: Sequence[Path],
    output: Path,
    *,
    ruleset: str | None = None,
    precision: Precision | None = None,
    other_code: bool = False,
    rehearsal: Benchmark | None = None,
) -> tuple[SubjectReview, str]:
    """Make the folder ``output``; return its review, and lines that tell the verdict, each warning and each note.

    The ruleset is the newest that has the benchmark, unless given. The precision is needed for logs
    outside their run folders, which tell it. With ``other_code``, code other than this repository's made the results.
    With ``rehearsal``, the results are those of this rehearsal, and the package is no submission.
    Raises InputError for input that makes no submission, and then leaves nothing behind.
    """
    if is_there(output):
        raise InputError(f"{output}: exists; choose another --output or delete it")
    if not PLAIN_NAME.fullmatch(org):
        raise InputError(f"--org {org!r}: expected letters, digits and _.+- as in a folder's name")
    description = read_description(system_json)
    packaged = SUBMITTED if rehearsal is None else rehearsed(rehearsal)
    runs, commit, code = read_results(results, packaged), commit_of(), tracked_files()
    require_same_origin(runs, commit, code, other_code=other_code)
    run_precision = precision_of(runs, precision)
    require_same_submitter(org, system_json, description, runs)
    evidence = require_evidence_holds(runs)
    benchmark, judged = benchmark_of(runs, packaged)
    contents = Contents(org, benchmark, judged, IMPLEMENTATION, commit, description, runs, run_precision, other_code)
    with published_folder(output) as folder:
        assemble(folder, system_json, contents, code)
        origins = {**_origins_of(folder.absolute(), system_json, contents), str(folder.absolute()): str(output)}
        review_ruleset = ruleset or judged.rulesets[-1]
        rehearsed_benchmark = judged if rehearsal else None
        subject = SubmissionPackage(
            folder.absolute(), review_ruleset, rehearsal=rehearsed_benchmark, by_rehearsal=rehearsal is not None
        )
        accepted, warnings = require_accepted(subject, origins)
    files = sum(entry.kind == "file" for entry in walk(output))
    tools = ", ".join(dict.fromkeys(check.tool for check in accepted.checks))
    passed = f"{len(accepted.checks)} official checks ({tools}), ruleset {accepted.ruleset}"
    lines = [f"{output}: {files} files; review passed: {passed}", *(f"  warning: {text}" for text in warnings)]
    notes = (*notes_on_origin(runs, commit, other_code=other_code), *evidence)
    return accepted, "\n".join([*lines, *(f"  note: {text}" for text in notes)])


def assemble(folder: Path, system_json: Path, contents: Contents, code: Sequence[Path]) -> None:
    """Fill an empty folder."""
    system, results = system_json.stem, contents.results
    name = contents.judged.name
    logs = folder / "results" / system / name
    implementations = folder / "benchmarks" / name / "implementations"
    system_folder = implementations / system
    for path in (folder / "systems", logs, system_folder):
        path.mkdir(parents=True)
    shutil.copyfile(system_json, folder / "systems" / system_json.name)
    for number, result in enumerate(results):
        copy_inside(result.path.parent, result.path.name, target=logs / result_name(number))
    copy_code(implementations / IMPLEMENTATION, code)
    write_configs(system_folder / "configs", results)
    copy_evidence(system_folder / "evidence", results)
    write_documents(system_folder, contents, write_manifests(system_folder / MANIFESTS_FOLDER, results))
    content = {"implementation": IMPLEMENTATION, "commit": contents.commit, "settings": settings(results[0])}
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    (system_folder / f"{system}_{IMPLEMENTATION}.json").write_text(text, encoding="utf-8")


def copy_code(destination: Path, code: Sequence[Path]) -> None:
    """Copy the repository's files as they are now, without tests, links and hidden files; the official repository
    checker refuses hidden files."""
    for name in code:
        hidden, source = any(part.startswith(".") for part in name.parts), REPOSITORY / name
        if hidden or name.parts[0] in NOT_NEEDED_TO_RUN or source.is_symlink() or not source.is_file():
            continue
        (destination / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, destination / name)


def write_configs(folder: Path, results: Sequence[RecordedRun]) -> None:
    """Write the published part of each run's configuration, which its log names as ``config_filename``, as
    result_N/config.json. Logs outside a run folder have none."""
    for number, result in enumerate(results):
        if result.config:
            config = json_inside(result.path.parent, CONFIG_FILE, largest_bytes=MOST_CONFIG_BYTES)
            path = folder / f"result_{number}" / CONFIG_FILE
            path.parent.mkdir(parents=True)
            path.write_text(as_text(published_config(config)), encoding="utf-8")


def copy_evidence(folder: Path, results: Sequence[RecordedRun]) -> None:
    """Copy the evidence of each run that has some, from which ``replay`` starts, as result_N/evidence.jsonl."""
    for number, result in enumerate(results):
        if result.config:
            copy_inside(result.path.parent, EVIDENCE_FILE, target=folder / f"result_{number}" / EVIDENCE_FILE)


def write_manifests(folder: Path, results: Sequence[RecordedRun]) -> list[str]:
    """Write the digests of data and checkpoint as each run recorded them, and the manifests in the runs' folders.

    Returns the names of the files; none for results without their runs' folders.
    """
    names: list[str] = []
    for number, result in enumerate(results):
        if not result.inputs:
            continue
        folder.mkdir(exist_ok=True)
        contents = {f"inputs_of_result_{number}.json": recorded_inputs(result)}
        for name in copied_manifests(result.path.parent):
            source = (result.path.parent, MANIFESTS_FOLDER, name)
            contents[name] = json_inside(*source, largest_bytes=MOST_MANIFEST_BYTES)
        for name, content in contents.items():
            if name not in names:
                (folder / name).write_text(as_text(without_addresses(content)), encoding="utf-8")
                names.append(name)
    return names


def recorded_inputs(result: RecordedRun) -> dict[str, Any]:
    """Return the digests of a run's inputs by path, as the run recorded them, and nothing else of the record."""
    digests = {path: entry.get("md5") if isinstance(entry, dict) else None for path, entry in result.inputs.items()}
    return {path: None if md5 is None else {"md5": md5} for path, md5 in digests.items()}


def as_text(content: Any) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _origins_of(folder: Path, system_json: Path, contents: Contents) -> dict[str, str]:
    """Return the origin of each file in the folder."""
    system = system_json.stem
    logs = folder / "results" / system / contents.judged.name
    origins = {str(logs / result_name(number)): str(result.path) for number, result in enumerate(contents.results)}
    origins[str(folder / "systems" / f"{system}.json")] = str(system_json)
    return origins


def require_accepted(package: SubmissionPackage, origins: Mapping[str, str]) -> tuple[SubjectReview, list[str]]:
    """Return the review of a package that it passes, and its warnings.

    ``origins`` maps paths in the folder to the user's paths. Raises InputError unless ``review`` passes the
    folder; each refused item is printed in a line.
    """

    def with_origins(text: str) -> str:
        for packaged_path, origin in origins.items():
            text = text.replace(packaged_path, origin)
        return " ".join(text.split())

    (subject,) = review_of([package]).subjects
    problems = [_problem(finding) for finding in subject.of("error")]
    if not problems:  # complaints of the official tools, where none of our rules explains them better
        failed = [check for check in subject.checks if not check.passed]
        problems = [f"{check.subject}: {check.tool} checker: {'; '.join(check.complaints[:3])}" for check in failed]
    if not subject.passed and len(problems) == 1:
        raise InputError(with_origins(problems[0]))
    if not subject.passed:
        print("\n".join(f"error: {with_origins(problem)}" for problem in problems), file=sys.stderr)
        raise InputError(f"no package is made: review refuses it for the {len(problems)} reasons above")
    return subject, [with_origins(_problem(finding)) for finding in subject.of("warning")]


def _problem(finding: Finding) -> str:
    also = f" (also in {', '.join(finding.also)})" if finding.also else ""
    return (
        f"{finding.location}: {finding.observed}; expected {finding.expected}; {finding.mend or finding.question}{also}"
    )
