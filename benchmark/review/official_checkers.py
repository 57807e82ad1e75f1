"""Which official tool applies to what, how it is called, and what proves that it ran and passed.

Commands and proofs: docs/facts/mlperf_review.md 4.10.

Tools get copies (scratch_copies.py). The summarizer reads the scaling.json that the package has.
"""

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmark.results.convergence import SUBMITTED_RUNS
from benchmark.results.printable import shortened
from benchmark.results.score import score
from benchmark.results.subjects import BENCHMARK, MOST_FILES, ResultSet, Subject, SubmissionPackage
from benchmark.review.official_tools import MOST_WIDTH, OfficialScores, Proof, Task, ToolVerdict, run_task
from benchmark.review.rehearsal_rules import rehearsal_rules
from benchmark.review.scratch_copies import PackageCopy, ScratchCopies, copy_package, copy_results

SEED_CHECK = Path(__file__).with_name("seed_check.py")
MOST_PARALLEL = 4
MINUTES_TOLERANCE = 0.01


@dataclass(frozen=True)
class Tool:
    """An official checker, and when it applies."""

    name: str
    module: str
    """With NO_LOG, else it appends to a file in the current folder."""
    applies_to: Literal["file", "runs", "package"]
    """Every result file; the runs of one system, loose or in a package; a submission folder."""
    runs: range = range(MOST_FILES)
    """How many runs of one system it takes."""
    gpt3_only: bool = False
    """It knows no rehearsal."""

    def declines(self, one: ResultSet) -> str | None:
        """Why it has nothing to check in loose runs; None: it has."""
        if self.applies_to == "package":
            return "for submission folders"
        if self.gpt3_only and not one.judged.official:
            return "the benchmark is not an official one"
        if self.applies_to == "runs" and one.is_open:
            return "the open division has no such rule"
        if len(one.files) not in self.runs:
            return f"for {self.runs.start} runs" + ("" if len(self.runs) == 1 else " or more")
        return None


COMPLIANCE = Tool("compliance", "mlperf_logging.compliance_checker", "file")
SEED = Tool("seed", str(SEED_CHECK), "runs", range(2, MOST_FILES))
RCP = Tool("RCP", "mlperf_logging.rcp_checker", "runs", range(SUBMITTED_RUNS, SUBMITTED_RUNS + 1), gpt3_only=True)
DESCRIPTION = Tool("system description", "mlperf_logging.system_desc_checker", "package")
PACKAGE = Tool("package", "mlperf_logging.package_checker", "package")
REPOSITORY = Tool("repository", "mlperf_logging.repo_checker", "package")
SUMMARIZER = Tool("summarizer", "mlperf_logging.result_summarizer", "package")
TOOLS = (COMPLIANCE, SEED, RCP, DESCRIPTION, PACKAGE, REPOSITORY, SUMMARIZER)
NO_LOG = ("--log_output", "/dev/null")
Chain = Sequence[Task | ToolVerdict]
"""Tasks that need each other's files, one after the other; a verdict in the place of one that cannot be."""


def run_checkers(subjects: Sequence[Subject]) -> list[list[ToolVerdict]]:
    """The checks of every official tool that applies, per subject, a few processes at a time."""
    workers = min(MOST_PARALLEL, os.cpu_count() or 1)
    with ThreadPoolExecutor(workers) as pool, tempfile.TemporaryDirectory(prefix="review-") as scratch:
        planned = [_planned(subject, Path(scratch, str(number))) for number, subject in enumerate(subjects)]
        found = _run_all(pool, planned)
        for number, subject in enumerate(subjects):
            if any(check.tool == PACKAGE.name and not check.passed for check in found[number]):
                parts = _planned(subject, Path(scratch, f"{number}_parts"), parts=True)
                found[number][:0] = _run_all(pool, [parts])[0]
        return found


def _run_all(pool: ThreadPoolExecutor, planned: Sequence[Sequence[Chain]]) -> list[list[ToolVerdict]]:
    futures = [[pool.submit(_run_chain, chain) for chain in chains] for chains in planned]
    return [[check for chain in chains for check in chain.result()] for chains in futures]


def _planned(subject: Subject, folder: Path, parts: bool = False) -> Sequence[Chain]:
    """The tasks of a subject, of a package as a whole or in ``parts``; a fault of ours in planning them is said, and
    the other subjects are checked."""
    package = isinstance(subject, SubmissionPackage)
    of_package = _parts_of if parts else _package_tasks
    try:
        return of_package(subject, folder) if isinstance(subject, SubmissionPackage) else _set_tasks(subject, folder)
    except Exception as error:
        where = str(subject.path) if isinstance(subject, SubmissionPackage) else _subject(subject)
        return [[_not_run(PACKAGE.name if package else COMPLIANCE.name, where, error)]]


def _run_chain(tasks: Chain) -> list[ToolVerdict]:
    verdicts = []
    for task in tasks:
        try:
            verdicts.append(run_task(task) if isinstance(task, Task) else task)
        except Exception as error:
            verdicts.append(_not_run(task.tool, task.subject, error))
    return verdicts


def _not_run(tool: str, subject: str, error: Exception) -> ToolVerdict:
    why = shortened(f"this program stopped: {type(error).__name__}: {error}", MOST_WIDTH)
    return ToolVerdict(tool, subject, "did not run", (f"{why}; report it with this file",), (), 0.0)


def check_file(path: Path, ruleset: str) -> ToolVerdict:
    """The compliance checker on one result file."""
    with tempfile.TemporaryDirectory(prefix="review-") as scratch:
        one = ResultSet(path.name, ruleset, (path,), None)
        return _run_chain(next(iter(_compliance_tasks(one, Path(scratch)))))[0]


def _set_tasks(one: ResultSet, scratch: Path) -> list[list[Task]]:
    chains = list(_compliance_tasks(one, scratch))
    folder = scratch / "runs" / BENCHMARK
    copies = copy_results(one, folder)
    for tool, task in ((SEED, _seed_task), (RCP, _rcp_task)):
        if tool.declines(one) is None:
            chains.append([task(one, folder, copies)])
    return chains


def _compliance_tasks(one: ResultSet, scratch: Path) -> Iterator[list[Task]]:
    for number, path in enumerate(one.files):
        folder = scratch / f"file_{number}"
        copied = folder / "result_0.txt"
        copies = ScratchCopies()
        copies.add(path, copied)
        arguments = ["-m", COMPLIANCE.module, "--usage", "training", "--ruleset", one.ruleset, *NO_LOG]
        judged = one.runs[number].judged
        if judged is None or judged.official:
            rules = f"training_{one.ruleset}/(closed|open)_gpt3.yaml"
        else:
            config, replaced = rehearsal_rules(one.ruleset, folder / "rules")
            arguments += ["--config", str(config)]
            copies.notes.append(f"rehearsal: the official rules for {', '.join(replaced)} do not apply")
            rules = "closed_gpt3.yaml"
        proof = Proof(
            must={
                rf"(?m)^INFO - Running compliance on file: {re.escape(str(copied))}": 1,
                rf"(?m)^INFO -  Compliance checks: .*{rules}": 1,
                r"(?m)^INFO - SUCCESS$": 1,
            },
            must_not=(r"(?m)^ERROR", "FAILED"),
        )
        notes = tuple(copies.notes)
        yield [Task(COMPLIANCE.name, str(path), [*arguments, str(copied)], proof, copies.renamed, notes)]


def _seed_task(one: ResultSet, folder: Path, copies: ScratchCopies) -> Task:
    files = sorted(str(path) for path in folder.glob("result_*.txt"))
    proof = Proof({f"(?m)^SEED CHECKER PASSED on {len(one.files)} files$": 1, "Running Seed Checker": 1}, ("ERROR",))
    arguments = [SEED.module, one.ruleset, *files]
    return Task(SEED.name, _subject(one), arguments, proof, copies.renamed, tuple(copies.notes), files=len(files))


def _rcp_task(one: ResultSet, folder: Path, copies: ScratchCopies) -> Task:
    arguments = ["-m", RCP.module, str(folder), "--rcp_usage", "training", "--rcp_version", one.ruleset, *NO_LOG]
    choice = one.references
    arguments += ["--rcp_pass", "pruned_rcps" if choice.pruned else "full_rcps"]
    if choice.custom is not None:
        arguments += ["--custom_rcps", str(choice.custom.absolute())]
    proof = Proof({r"(?m)^INFO - .*, RCP test PASSED$": 1}, ("(?i)bypass", "(?m)^ERROR"))
    return Task(RCP.name, _subject(one), arguments, proof, copies.renamed, tuple(copies.notes), files=len(one.files))


def _subject(one: ResultSet) -> str:
    return str(one.folder or one.name)


def _package_tasks(package: SubmissionPackage, scratch: Path) -> list[list[Task]]:
    """The whole, and the repository checker, which alone gets the package itself."""
    copy = copy_package(package, scratch)
    checker = _package_task(package, copy, len(list((copy.path / "systems").glob("*.json"))))
    summarizer = _summarizer_task(package, copy, scratch / "s.csv")
    return [[summarizer, checker], [_repository_task(package)]]


def _parts_of(package: SubmissionPackage, scratch: Path) -> list[list[Task]]:
    """The tools that the package checker is made of, each on its part: where it does not pass they say which."""
    chains = [chain for number, one in enumerate(package.sets) for chain in _set_tasks(one, scratch / f"set_{number}")]
    return chains + [[task] for task in _description_tasks(package, copy_package(package, scratch / "package"))]


def _description_tasks(package: SubmissionPackage, copy: PackageCopy) -> list[Task]:
    tasks = []
    for path in sorted((copy.path / "systems").glob("*.json")):
        proof = Proof({r"(?m)^INFO -   System description checker passed for ": 1}, ("(?m)^ERROR",))
        arguments = ["-m", DESCRIPTION.module, str(path), "training", package.ruleset, *NO_LOG]
        subject = copy.renamed.get(str(path), str(path))
        tasks.append(Task(DESCRIPTION.name, subject, arguments, proof, copy.renamed))
    return tasks


def _package_task(package: SubmissionPackage, copy: PackageCopy, descriptions: int) -> Task:
    files = sum(len(one.files) for one in package.sets)
    closed = [one for one in package.sets if one.system is not None and one.system.string("division") == "closed"]
    proof = Proof(
        must={
            "(?m)^INFO -   System description checker passed for ": descriptions,
            "(?m)^INFO -  Running compliance checks in dir ": max(1, len(package.sets)),
            "(?m)^INFO - Running compliance on file: ": files,
            "(?m)^INFO -  Compliance checks: .*_gpt3.yaml": files,
            "(?m)^INFO -  Running Seed Checker": len(closed),
            "(?m)^INFO - RCP Test Passed: ": len(closed),
            "(?m)^INFO - PACKAGE CHECKER FOUND NO ERRORS, SUCCESS !": 1,
        },
        must_not=("Skipping benchmark", "(?i)bypass", "PACKAGE CHECKER FOUND ERRORS", "(?m)^ERROR"),
    )
    arguments = ["-m", PACKAGE.module, str(copy.path), "training", package.ruleset, *NO_LOG]
    return Task(PACKAGE.name, str(package.path), arguments, proof, copy.renamed, copy.notes, files=max(1, files))


def _summarizer_task(package: SubmissionPackage, copy: PackageCopy, csv: Path) -> Task:
    """To be run before the package checker, which writes its own scaling.json: the score is that of the package."""
    arguments = ["-m", SUMMARIZER.module, str(copy.path), "training", package.ruleset, "--csv", str(csv)]
    proof = Proof(must_not=("ERROR:",))
    table = csv.with_name("s_detailed.json")

    def differs() -> list[str]:
        return _score_differs(package, official_scores(package, table, copy.renamed))

    def scores() -> OfficialScores:
        return official_scores(package, table, copy.renamed)

    files = max(1, sum(len(one.files) for one in package.sets))
    return Task(SUMMARIZER.name, str(package.path), arguments, proof, copy.renamed, copy.notes, differs, files, scores)


def _repository_task(package: SubmissionPackage) -> Task:
    arguments = ["-m", REPOSITORY.module, str(package.path), "training", package.ruleset, *NO_LOG]
    proof = Proof({r"(?m)^INFO - ALL CHECKS PASSED\.$": 1}, ("CHECKS FAILED", "(?m)^ERROR"))
    files = max(1, sum(len(one.files) for one in package.sets))
    return Task(REPOSITORY.name, str(package.path), arguments, proof, {}, files=files)


def official_scores(package: SubmissionPackage, table: Path, renamed: Mapping[str, str]) -> OfficialScores:
    """The summarizer's columns of gpt3, by system: time_to_train, Energy, GBS, samples_to_converge, RCP and its factor.

    Empty where it wrote no table; without the columns, and the systems, that it left empty.
    """
    if not table.is_file():
        return {}
    rows = {Path(str(row.get("details_url"))).stem: row for row in json.loads(table.read_text("utf-8"))}
    copies = {Path(real).name: Path(scratch).name for scratch, real in renamed.items()}
    found: dict[str, dict[str, float | str]] = {}
    for one in package.sets:
        row = rows.get(copies.get(one.name, one.name), {})
        columns = {name.partition(":")[2]: value for name, value in row.items() if name.startswith(f"{BENCHMARK}:")}
        found[one.name] = {name: value for name, value in columns.items() if value is not None and value == value}
    return found


def _score_differs(package: SubmissionPackage, table: OfficialScores) -> list[str]:
    """Whether the summarizer's table lacks a system, or has another time or number of tokens than ours."""
    if not package.sets:
        return [f"no {BENCHMARK} results to summarize"]
    if not table:
        return ["it wrote no table of scores"]
    wrong = []
    for one in package.sets:
        minutes, tokens = table[one.name].get("time_to_train"), table[one.name].get("samples_to_converge")
        ours, median = score(one).minutes, one.convergence.median
        if not isinstance(minutes, int | float):
            wrong.append(f"no score for {one.name}")
        elif ours is None or abs(minutes - ours) > MINUTES_TOLERANCE:
            wrong.append(f"{one.name}: {minutes:.4f} minutes, but the logs and scaling.json give {ours}")
        if isinstance(tokens, int | float) and median is not None and abs(tokens - median) > 1:
            wrong.append(f"{one.name}: {tokens:,.0f} tokens to converge, but the logs give {median:,.0f}")
    return wrong
