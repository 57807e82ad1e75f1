"""Choose the official tools that apply, call them, and prove that they ran and passed.

Commands and proofs: docs/facts/mlperf_review.md 4.10. All tools get copies (tool_inputs.py), except the repository
checker, which checks names and links. The summarizer reads the package's scaling.json.
"""

import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from benchmark.judging.results.score import score
from benchmark.judging.results.subjects import ResultSet, Subject, SubmissionPackage, names_in
from benchmark.judging.review.official_tools import MOST_WIDTH, OfficialScores, Task, ToolVerdict, run_task
from benchmark.judging.review.tool_inputs import ScratchCopies, rehearsal_rules, safe_name
from foundation.plain_text import shortened

COMPLIANCE, SEED, RCP, DESCRIPTION = "compliance", "seed", "RCP", "system description"
PACKAGE, REPOSITORY, SUMMARIZER = "package", "repository", "summarizer"
MODULES = {
    COMPLIANCE: "mlperf_logging.compliance_checker",
    RCP: "mlperf_logging.rcp_checker",
    DESCRIPTION: "mlperf_logging.system_desc_checker",
    PACKAGE: "mlperf_logging.package_checker",
    REPOSITORY: "mlperf_logging.repo_checker",
    SUMMARIZER: "mlperf_logging.result_summarizer",
}
SEED_CHECK = Path(__file__).with_name("seed_check.py")
NO_LOG = ("--log_output", "/dev/null")
"""Options that stop a tool from appending to a file in the current folder."""
MOST_PARALLEL = 4
MINUTES_TOLERANCE = 0.01
Chain = Sequence[Task]
"""Tasks that run one after the other because each needs the files of the one before."""
Plan = Callable[[Subject, Path], Sequence[Chain]]


def declined(one: ResultSet) -> dict[str, str]:
    """Return the official tools that have nothing to check in runs outside a package, and the reasons."""
    found = {}
    for tool, few in ((SEED, len(one.files) < 2), (RCP, len(one.files) != one.judged.runs)):
        if one.is_open:
            found[tool] = "the open division has no such rule"
        elif tool == RCP and not one.judged.official:
            found[tool] = "the benchmark is not an official one"
        elif few:
            found[tool] = "for 2 runs or more" if tool == SEED else f"for {one.judged.runs} runs"
    return found | dict.fromkeys((DESCRIPTION, PACKAGE, REPOSITORY, SUMMARIZER), "for submission folders")


def run_checkers(subjects: Sequence[Subject], done: Callable[[], object] = lambda: None) -> list[list[ToolVerdict]]:
    """Return, per subject, the results of every official tool that applies; a few processes run at a time.

    ``done`` is called after each subject. If the package checker does not pass a package, the tools that it consists of
    run on the package's parts, to show which part fails.
    """
    with (
        ThreadPoolExecutor(min(MOST_PARALLEL, os.cpu_count() or 1)) as pool,
        tempfile.TemporaryDirectory(prefix="review-") as scratch,
    ):

        def start(plan: Plan, subject: Subject, name: str) -> list[Future[list[ToolVerdict]]]:
            try:
                return [pool.submit(_run_chain, chain) for chain in plan(subject, Path(scratch, name))]
            except Exception as error:
                return [pool.submit(list, [_not_run(COMPLIANCE, str(subject.path), error)])]

        started = [start(_chains, subject, str(number)) for number, subject in enumerate(subjects)]
        found = []
        for number, (subject, futures) in enumerate(zip(subjects, started, strict=True)):
            checks = [check for future in futures for check in future.result()]
            if any(check.tool == PACKAGE and not check.passed for check in checks):
                parts = start(_parts, subject, f"{number}_parts")
                checks[:0] = [check for future in parts for check in future.result()]
            found.append(checks)
            done()
        return found


def _run_chain(tasks: Chain) -> list[ToolVerdict]:
    verdicts = []
    for task in tasks:
        try:
            verdicts.append(run_task(task))
        except Exception as error:
            verdicts.append(_not_run(task.tool, task.subject, error))
    return verdicts


def _not_run(tool: str, subject: str, error: Exception) -> ToolVerdict:
    """Return a fault of ours as the result of this tool, so that the other tools and subjects are still checked."""
    why = shortened(f"this program stopped: {type(error).__name__}: {error}", MOST_WIDTH)
    return ToolVerdict(tool, subject, "did not run", (f"{why}; report it with this file",))


def _chains(subject: Subject, scratch: Path) -> list[Chain]:
    if isinstance(subject, SubmissionPackage):
        return _package_chains(subject, scratch)
    return [[task] for task in run_tasks(subject, scratch)]


def run_tasks(one: ResultSet, scratch: Path) -> list[Task]:
    """Return the checks of one system's runs: compliance of each run, seeds and convergence of all."""
    tasks = [_compliance(one, number, scratch / f"file_{number}") for number in range(len(one.files))]
    copies = ScratchCopies(scratch / "runs" / one.judged.name)
    copies.add_runs(one.files)
    subject, notes, files = str(one.folder or one.name), tuple(copies.notes), len(one.files)
    without = declined(one)
    if SEED not in without:
        paths = [str(copies.folder / f"result_{number}.txt") for number in range(files)]
        must = {f"(?m)^SEED CHECKER PASSED on {files} files$": 1, "Running Seed Checker": 1}
        tasks.append(
            Task(SEED, subject, [str(SEED_CHECK), one.ruleset, *paths], must, ("ERROR",), copies.renamed, notes, files)
        )
    if RCP not in without:
        arguments = ["-m", MODULES[RCP], str(copies.folder), "--rcp_usage", "training", "--rcp_version", one.ruleset]
        arguments += [*NO_LOG, "--rcp_pass", "pruned_rcps" if one.references.pruned else "full_rcps"]
        if one.references.custom is not None:
            arguments += ["--custom_rcps", str(one.references.custom.absolute())]
        must = {r"(?m)^INFO - .*, RCP test PASSED$": 1}
        tasks.append(Task(RCP, subject, arguments, must, ("(?i)bypass", "(?m)^ERROR"), copies.renamed, notes, files))
    return tasks


def _compliance(one: ResultSet, number: int, scratch: Path) -> Task:
    copies = ScratchCopies(scratch)
    copies.add(one.files[number], scratch / "result_0.txt")
    copied = str(scratch / "result_0.txt")
    arguments = ["-m", MODULES[COMPLIANCE], "--usage", "training", "--ruleset", one.ruleset, *NO_LOG]
    judged, notes = one.runs[number].rules, [*copies.notes]
    rules = f"training_{one.ruleset}/(closed|open)_{judged.name}.yaml"
    if judged.stands_for is not None:
        config, replaced = rehearsal_rules(judged, one.ruleset, scratch / "rules")
        arguments += ["--config", str(config)]
        notes.append(f"rehearsal: the official rules for {', '.join(replaced)} do not apply")
        rules = f"closed_{judged.stands_for}.yaml"
    must = {
        rf"(?m)^INFO - Running compliance on file: {re.escape(copied)}": 1,
        rf"(?m)^INFO -  Compliance checks: .*{rules}": 1,
        r"(?m)^INFO - SUCCESS$": 1,
    }
    path = str(one.files[number])
    return Task(COMPLIANCE, path, [*arguments, copied], must, (r"(?m)^ERROR", "FAILED"), copies.renamed, tuple(notes))


def _package_chains(package: SubmissionPackage, scratch: Path) -> list[Chain]:
    """Return the tasks of a package. The summarizer runs before the package checker, which writes its own scaling.json,
    so that the score is the package's."""
    copies = ScratchCopies(scratch / safe_name(package.path.name))
    copies.add_package(package)
    files, subject, table = max(1, sum(len(one.files) for one in package.sets)), str(package.path), scratch / "s.csv"
    common = (copies.renamed, tuple(copies.notes), files)

    def call(tool: str, path: Path, *options: str) -> list[str]:
        return ["-m", MODULES[tool], str(path), "training", package.ruleset, *options]

    def scores() -> tuple[OfficialScores, list[str]]:
        found = official_scores(package, table.with_name("s_detailed.json"), copies.renamed)
        return found, _score_differs(package, found)

    summarizer = Task(
        SUMMARIZER, subject, call(SUMMARIZER, copies.folder, "--csv", str(table)), {}, ("ERROR:",), *common, scores
    )
    closed = [one for one in package.sets if one.system is not None and one.system.string("division") == "closed"]
    must = {
        "(?m)^INFO -   System description checker passed for ": len(package.descriptions),
        "(?m)^INFO -  Running compliance checks in dir ": max(1, len(package.sets)),
        "(?m)^INFO - Running compliance on file: ": files,
        f"(?m)^INFO -  Compliance checks: .*_({'|'.join(names_in(package.ruleset))}).yaml": files,
        "(?m)^INFO -  Running Seed Checker": len(closed),
        "(?m)^INFO - RCP Test Passed: ": len(closed),
        "(?m)^INFO - PACKAGE CHECKER FOUND NO ERRORS, SUCCESS !": 1,
    }
    must_not = ("Skipping benchmark", "(?i)bypass", "PACKAGE CHECKER FOUND ERRORS", "(?m)^ERROR")
    checker = Task(PACKAGE, subject, call(PACKAGE, copies.folder, *NO_LOG), must, must_not, *common)
    passed = {r"(?m)^INFO - ALL CHECKS PASSED\.$": 1}
    repository = Task(
        REPOSITORY,
        subject,
        call(REPOSITORY, package.path, *NO_LOG),
        passed,
        ("CHECKS FAILED", "(?m)^ERROR"),
        files=files,
    )
    return [[summarizer, checker], [repository]]


def _parts(subject: Subject, scratch: Path) -> list[Chain]:
    """Return the tasks of the tools that the package checker consists of."""
    assert isinstance(subject, SubmissionPackage)
    tasks = [task for n, one in enumerate(subject.sets) for task in run_tasks(one, scratch / f"set_{n}")]
    copies = ScratchCopies(scratch / "systems")
    for description in subject.descriptions:
        copy = copies.folder / safe_name(description.path.name)
        copies.add(description.path, copy, subject.ruleset)
        arguments = ["-m", MODULES[DESCRIPTION], str(copy), "training", subject.ruleset, *NO_LOG]
        must = {r"(?m)^INFO -   System description checker passed for ": 1}
        tasks.append(Task(DESCRIPTION, str(description.path), arguments, must, ("(?m)^ERROR",), copies.renamed))
    return [[task] for task in tasks]


def official_scores(package: SubmissionPackage, table: Path, renamed: Mapping[str, str]) -> OfficialScores:
    """Return the summarizer's columns by SYSTEM/BENCHMARK: time_to_train, Energy, GBS, samples_to_converge, RCP and its
    factor.

    The result is empty if the summarizer wrote no table; columns and systems that it left empty are missing.
    """
    if not table.is_file():
        return {}
    rows = {Path(str(row.get("details_url"))).stem: row for row in json.loads(table.read_text("utf-8"))}
    copies = {Path(real).name: Path(scratch).name for scratch, real in renamed.items()}
    found: dict[str, dict[str, float | str]] = {}
    for one in package.sets:
        row = rows.get(copies.get(one.name, one.name), {})
        prefix = f"{_folder(one)}:"
        columns = {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}
        found[_place(one)] = {name: value for name, value in columns.items() if value is not None and value == value}
    return found


def _folder(one: ResultSet) -> str:
    return one.judged.name if one.folder is None else one.folder.name


def _place(one: ResultSet) -> str:
    return f"{one.name}/{_folder(one)}"


def _score_differs(package: SubmissionPackage, table: OfficialScores) -> list[str]:
    """Return the places where the summarizer's table lacks a system, or has another time or number of tokens than
    ours."""
    wrong = [] if table else [f"no {' or '.join(names_in(package.ruleset))} results in its table of scores"]
    for one in package.sets if table else ():
        columns, judged = table[_place(one)], one.judged
        minutes, count = columns.get("time_to_train"), columns.get("samples_to_converge")
        ours, middle = score(one).minutes, one.convergence.middle
        if not isinstance(minutes, int | float):
            wrong.append(f"no score for {one.name}")
        elif ours is None or abs(minutes - ours) > MINUTES_TOLERANCE:
            wrong.append(f"{one.name}: {minutes:.4f} minutes, but the logs and scaling.json give {ours}")
        if isinstance(count, int | float) and middle is not None and abs(count - middle / judged.tokens_per_unit) > 1:
            words = f"{count:,.0f} {judged.unit} to converge, but the logs give {judged.count(middle)}"
            wrong.append(f"{one.name}: {words}")
    return wrong
