"""``package``: three results, a system description and the code become the folder of a submission.

systems/SYSTEM.json   results/SYSTEM/gpt3/result_{0,1,2}.txt   benchmarks/gpt3/implementations/{IMPLEMENTATION,SYSTEM}/

The layout is that of docs/facts/mlperf_review.md 4.1. The folder has its final name only when ``review`` has passed it.
"""

import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.results.printable import shortened
from benchmark.results.recorded_run import RecordedRun, settings
from benchmark.results.subjects import NEWEST_RULESET
from benchmark.results.system_description import MOST_BYTES
from benchmark.review.findings import Finding
from benchmark.review.verdict import review
from benchmark.submission.package_documents import write_documents
from benchmark.submission.package_evidence import copy_evidence, require_evidence_holds
from benchmark.submission.package_results import read_results
from benchmark.submission.provenance import copy_code, notes_on_origin, require_same_origin, write_manifests
from benchmark.submission.system_fields import marked_fields
from stage.errors import InputError
from stage.git import commit_of
from stage.outputs.publish import published_folder
from stage.regular_files import UnfitFile, read_regular, walk

IMPLEMENTATION = "pytorch"
"""Folder of the code."""
SHORTEST_NAME = 3
"""Letters of a name that may stand for a longer one."""
MOST_SHOWN = 200
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
"""Neither hidden nor with spaces, which the repository checker refuses, nor a path."""


def make_package(
    org: str, system_json: Path, results: Sequence[Path], output: Path, *, ruleset: str = NEWEST_RULESET
) -> str:
    """Make the folder ``output``; returns what review says of it, with its warnings and notes in lines of their own.

    Raises InputError for input that makes no submission; nothing is left behind then.
    """
    if output.exists():
        raise InputError(f"{output}: exists; choose another --output or delete it")
    if not PLAIN_NAME.fullmatch(org):
        raise InputError(f"--org {org!r}: expected letters, digits and _.+- as in a folder's name")
    description = read_description(system_json)
    runs = read_results(results)
    commit = commit_of()
    require_same_origin(runs, commit)
    require_same_submitter(org, system_json, description, runs)
    evidence = require_evidence_holds(runs)
    with published_folder(output) as folder:
        assemble(folder, org, system_json, description, runs)
        given = {**_given(folder.absolute(), system_json, runs), str(folder.absolute()): str(output)}
        accepted = require_accepted(folder, ruleset, given)
    files = sum(entry.kind == "file" for entry in walk(output))
    told = [f"{output}: {files} files; review passed: {accepted.told}"]
    told += [f"  warning: {warning}" for warning in accepted.warnings]
    return "\n".join(told + [f"  note: {note}" for note in (*notes_on_origin(runs, commit), *evidence)])


def _given(folder: Path, system_json: Path, results: Sequence[RecordedRun]) -> dict[str, str]:
    """Where the files that stand in the folder came from."""
    system = system_json.stem
    logs = folder / "results" / system / "gpt3"
    given = {str(logs / f"result_{number}.txt"): str(result.path) for number, result in enumerate(results)}
    given[str(folder / "systems" / f"{system}.json")] = str(system_json)
    return given


def read_description(path: Path) -> dict[str, Any]:
    """Raises InputError unless it is a description with every mark filled in, under a name that can be a folder's."""
    if not PLAIN_NAME.fullmatch(path.stem) or path.suffix != ".json" or path.stem == IMPLEMENTATION:
        expected = f"letters, digits and _.+- before .json, other than {IMPLEMENTATION}"
        raise InputError(f"{path}: its name becomes that of the system; expected {expected}; rename it")
    try:
        description = json.loads(read_regular(path, MOST_BYTES))
    except UnfitFile as error:
        raise InputError(f"{path}: {error}; give the file that describe-system wrote") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error}); begin with python -m benchmark describe-system") from error
    if not isinstance(description, dict):
        raise InputError(f"{path}: expected a JSON object; begin with python -m benchmark describe-system")
    marked = marked_fields(description)
    if marked:
        names = shortened(", ".join(marked), MOST_SHOWN)
        raise InputError(f"{path}: {len(marked)} fields are still to be filled in by hand: {names}")
    return description


def require_same_submitter(
    org: str, system_json: Path, description: Mapping[str, Any], results: Sequence[RecordedRun]
) -> None:
    """Raises InputError where --org is another organisation than a log or the description names.

    Case, punctuation and a longer form of the name make no other one: Intel-HabanaLabs is Habana.
    """
    named = [(str(system_json), "submitter", description.get("submitter"), "write it there, or give that --org")]
    for result in results:
        event = result.summary.log.first("submission_org")
        if event is not None:
            mend = "train with --submission-org, or give that --org: a log is not edited"
            named.append((f"{result.path}:{event.line}", event.key, event.value, mend))
    for place, field, name, mend in named:
        if not isinstance(name, str) or not _same_name(org, name):
            raise InputError(f"{place}: {field} {shortened(repr(name), MOST_SHOWN)}, but --org {org}; {mend}")


def _same_name(left: str, right: str) -> bool:
    words = ["".join(filter(str.isalnum, name.casefold())) for name in (left, right)]
    short, long = sorted(words, key=len)
    return short == long or (len(short) >= SHORTEST_NAME and short in long)


def assemble(
    folder: Path, org: str, system_json: Path, description: dict[str, Any], results: Sequence[RecordedRun]
) -> None:
    """Fill an empty folder."""
    system = system_json.stem
    logs = folder / "results" / system / "gpt3"
    implementations = folder / "benchmarks" / "gpt3" / "implementations"
    here = implementations / system
    for path in (folder / "systems", logs, here):
        path.mkdir(parents=True)
    shutil.copyfile(system_json, folder / "systems" / system_json.name)
    for number, result in enumerate(results):
        shutil.copyfile(result.path, logs / f"result_{number}.txt")
    copy_code(implementations / IMPLEMENTATION)
    manifests = write_manifests(here / "manifests", results)
    copy_evidence(here / "evidence", results)
    write_documents(here, org, IMPLEMENTATION, description, results, manifests)
    content = {"implementation": IMPLEMENTATION, "commit": commit_of(), "settings": settings(results[0])}
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    (here / f"{system}_{IMPLEMENTATION}.json").write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class Accepted:
    """What review says of a package that it passes."""

    told: str
    warnings: Sequence[str]


def require_accepted(folder: Path, ruleset: str, given: Mapping[str, str]) -> Accepted:
    """Raises InputError unless ``review`` passes the folder; each thing it refuses is printed in a line.

    ``given`` has the paths that the user knows for those in the folder.
    """

    def as_given(text: str) -> str:
        for inside, outside in given.items():
            text = text.replace(inside, outside)
        return " ".join(text.split())

    (subject,) = review([folder], ruleset).subjects
    problems = [_problem(finding) for finding in subject.of("error")]
    if not problems:  # the official tools' own words, where no rule of ours says it better
        failed = [check for check in subject.checks if not check.passed]
        problems = [f"{check.subject}: {check.tool} checker: {'; '.join(check.complaints[:3])}" for check in failed]
    if not subject.passed and len(problems) == 1:
        raise InputError(as_given(problems[0]))
    if not subject.passed:
        print("\n".join(f"error: {as_given(problem)}" for problem in problems), file=sys.stderr)
        raise InputError(f"no package is made: review refuses it for the {len(problems)} reasons above")
    tools = ", ".join(dict.fromkeys(check.tool for check in subject.checks))
    told = f"{len(subject.checks)} official checks ({tools}), ruleset {subject.ruleset}"
    return Accepted(told, [as_given(_problem(finding)) for finding in subject.of("warning")])


def _problem(finding: Finding) -> str:
    also = f" (also in {', '.join(finding.also)})" if finding.also else ""
    return f"{finding.place}: {finding.found}; expected {finding.due}; {finding.mend}{also}"
