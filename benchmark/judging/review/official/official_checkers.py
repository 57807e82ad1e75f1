"""Choose the official tools that apply, call them, and prove that they ran and passed.

Commands and proofs: docs/facts/mlperf_review.md 4.10. All tools read copies (subject_copies.py). The summarizer reads
the package's scaling.json; each tool has copies of its own, since two of them write there.
"""

import os
import re
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from benchmark.judging.results.subjects import ResultSet, Subject, SubmissionPackage, names_in
from benchmark.judging.review.official import seed_check
from benchmark.judging.review.official.official_scores import official_scores, score_differences
from benchmark.judging.review.official.rehearsal_rules import rehearsal_rules
from benchmark.judging.review.official.subject_copies import SubjectCopies, safe_name
from benchmark.judging.review.official.tool_process import ToolProcess
from benchmark.judging.review.official.tool_verdicts import (
    FOLDER,
    MOST_WIDTH,
    OfficialScores,
    OfficialTool,
    Task,
    ToolVerdict,
    run_task,
)
from benchmark.run_record.file_names import result_name
from foundation.plain_text import shortened


def _module(name: str, package: str, module: str) -> OfficialTool:
    return OfficialTool(name, f"mlperf_logging.{package}", f"mlperf_logging.{package}.{module}")


COMPLIANCE = _module("compliance", "compliance_checker", "mlp_compliance")
RCP = _module("RCP", "rcp_checker", "rcp_checker")
DESCRIPTION = _module("system description", "system_desc_checker", "system_desc_checker")
PACKAGE = _module("package", "package_checker", "package_checker")
REPOSITORY = _module("repository", "repo_checker", "repo_checker")
SUMMARIZER = _module("summarizer", "result_summarizer", "result_summarizer")
SEED = OfficialTool("seed", str(Path(seed_check.__file__)), "mlperf_logging.package_checker.seed_checker")
UNOFFICIAL = "the benchmark is not an official one"
NO_LOG = ("--log_output", "/dev/null")
"""Options that stop a tool from appending to a file in the current folder."""
MOST_PARALLEL = 4
Plan = Callable[[Subject, Path], Sequence[Task]]


def inapplicable(runs: ResultSet) -> dict[str, str]:
    """Return the official tools that have nothing to check in runs outside a package, and the reasons."""
    reasons = {}
    for tool, few in ((SEED, len(runs.files) < 2), (RCP, len(runs.files) != runs.judged.runs)):
        if runs.is_open:
            reasons[tool.name] = "the open division has no such rule"
        elif tool == RCP and not runs.judged.official:
            reasons[tool.name] = UNOFFICIAL
        elif few:
            reasons[tool.name] = "for 2 runs or more" if tool == SEED else f"for {runs.judged.runs} runs"
    of_packages = (DESCRIPTION, PACKAGE, REPOSITORY, SUMMARIZER)
    return reasons | dict.fromkeys((tool.name for tool in of_packages), "for submission folders")


def inapplicable_to_rehearsals() -> dict[str, str]:
    """Return the official tools that have nothing to check in the package of a rehearsal, and the reasons."""
    return dict.fromkeys((tool.name for tool in (PACKAGE, SUMMARIZER, RCP)), UNOFFICIAL)


def run_checkers(
    subjects: Sequence[Subject], tools: ToolProcess, done: Callable[[], object] = lambda: None
) -> list[list[ToolVerdict]]:
    """Return, per subject, the results of every official tool that applies; a few processes run at a time.

    ``done`` is called after each subject. If the package checker does not pass a package, the tools that it consists of
    run on the package's parts, to show which part fails.
    """
    with ThreadPoolExecutor(min(MOST_PARALLEL, os.cpu_count() or 1)) as pool:

        def start(plan: Plan, subject: Subject, name: str) -> list[Future[ToolVerdict]]:
            try:
                return [pool.submit(_run, task, tools) for task in plan(subject, tools.scratch / name)]
            except Exception as error:
                return [pool.submit(_not_run, COMPLIANCE.name, str(subject.path), error)]

        try:
            started = [start(_tasks, subject, f"{number}") for number, subject in enumerate(subjects)]
            verdicts = []
            for number, (subject, futures) in enumerate(zip(subjects, started, strict=True)):
                checks = [future.result() for future in futures]
                if any(check.tool == PACKAGE.name and not check.passed for check in checks):
                    parts = start(_parts, subject, f"{number}_parts")
                    checks[:0] = [future.result() for future in parts]
                for name in (f"{number}", f"{number}_parts"):
                    shutil.rmtree(tools.scratch / name, ignore_errors=True)
                verdicts.append(checks)
                done()
            return verdicts
        except BaseException:  # an interrupt: no task is waited for
            pool.shutdown(wait=False, cancel_futures=True)
            tools.end()
            raise


def _run(task: Task, tools: ToolProcess) -> ToolVerdict:
    try:
        return run_task(task, tools)
    except Exception as error:
        return _not_run(task.tool.name, task.subject, error)


def _not_run(tool: str, subject: str, error: Exception) -> ToolVerdict:
    """Return a fault of ours as the result of this tool, so that the other tools and subjects are still checked."""
    why = shortened(f"this program stopped: {type(error).__name__}: {error}", MOST_WIDTH)
    return ToolVerdict(tool, subject, "did not run", (f"{why}; report it with this file",))


def _tasks(subject: Subject, scratch: Path) -> Sequence[Task]:
    return package_tasks(subject, scratch) if isinstance(subject, SubmissionPackage) else run_tasks(subject, scratch)


def run_tasks(runs: ResultSet, scratch: Path) -> list[Task]:
    """Return the checks of one system's runs: compliance of each run, seeds and convergence of all."""
    name, count = runs.judged.name, len(runs.files)
    copies = SubjectCopies(scratch / "runs")
    copies.add_runs(runs.files, name)
    targets = [f"{name}/result_{number}.txt" for number in range(count)]
    tasks = [
        _compliance(runs, number, copies.copy_to(scratch / f"file_{number}", {target: result_name(0)}))
        for number, target in enumerate(targets)
    ]
    subject, reasons = str(runs.folder or runs.name), inapplicable(runs)
    if SEED.name not in reasons:
        must = {f"(?m)^{re.escape(seed_check.PASSED)} on {count} files$": 1, "Running Seed Checker": 1}
        arguments = [runs.ruleset, *(f"{FOLDER}/{target}" for target in targets)]
        tasks.append(Task(SEED, subject, arguments, copies.copy_to(scratch / "seeds"), must, ("ERROR",), logs=count))
    if RCP.name not in reasons:
        arguments = [f"{FOLDER}/{name}", "--rcp_usage", "training", "--rcp_version", runs.ruleset, *NO_LOG]
        arguments += ["--rcp_pass", "pruned_rcps" if runs.references.pruned else "full_rcps"]
        if runs.references.custom is not None:
            copies.add(runs.references.custom.absolute(), "points.json")
            arguments += ["--custom_rcps", f"{FOLDER}/points.json"]
        must = {r"(?m)^INFO - .*, RCP test PASSED$": 1}
        tasks.append(Task(RCP, subject, arguments, copies, must, ("(?i)bypass", "(?m)^ERROR"), logs=count))
    return tasks


def _compliance(runs: ResultSet, number: int, copies: SubjectCopies) -> Task:
    copied = f"{FOLDER}/result_0.txt"
    arguments = ["--usage", "training", "--ruleset", runs.ruleset, *NO_LOG]
    judged, notes = runs.runs[number].rules, []
    rules = f"training_{runs.ruleset}/(closed|open)_{judged.name}.yaml"
    if judged.stands_for is not None:
        path, replaced = rehearsal_rules(judged, runs.ruleset, copies.folder / "rules")
        config = f"{FOLDER}/{path.relative_to(copies.folder)}"
        arguments += ["--config", config]
        notes.append(f"rehearsal: the official rules for {', '.join(replaced)} do not apply")
        rules = f"closed_{judged.stands_for}.yaml"
    must = {
        rf"(?m)^INFO - Running compliance on file: {copied}": 1,
        rf"(?m)^INFO -  Compliance checks: .*{rules}": 1,
        r"(?m)^INFO - SUCCESS$": 1,
    }
    subject, must_not = str(runs.files[number]), (r"(?m)^ERROR", "FAILED")
    return Task(COMPLIANCE, subject, [*arguments, copied], copies, must, must_not, tuple(notes))


def package_tasks(package: SubmissionPackage, scratch: Path) -> list[Task]:
    """Return the checks of a package: scores, the package checker, and the names and sizes of its files.

    Summarizer and package checker do not know a rehearsal; its package has the tools that the package checker consists
    of.
    """
    name = safe_name(package.path.name)
    skeleton, passed = SubjectCopies(scratch / "repository"), {r"(?m)^INFO - ALL CHECKS PASSED\.$": 1}
    skeleton.add_repository(package, name)
    files, subject = max(1, sum(len(results.files) for results in package.sets)), str(package.path)

    def call(*options: str) -> list[str]:
        return [f"{FOLDER}/{name}", "training", package.ruleset, *options]

    repository = Task(REPOSITORY, subject, call(*NO_LOG), skeleton, passed, ("CHECKS FAILED", "(?m)^ERROR"), logs=files)
    if package.rehearsal is not None:
        return [*_parts(package, scratch), repository]
    copies = SubjectCopies(scratch / "scored")
    copies.add_package(package, name)

    def scores(table: str) -> tuple[OfficialScores, list[str]]:
        official = official_scores(package, table, copies.renamed)
        return official, score_differences(package, official)

    closed = [
        results
        for results in package.sets
        if results.system is not None and results.system.string("division") == "closed"
    ]
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
    checked = copies.copy_to(scratch / "checked")
    return [
        Task(
            SUMMARIZER, subject, call("--csv", "scores.csv"), copies, {}, ("ERROR:",),
            logs=files, table="scores_detailed.json", scores=scores,
        ),
        Task(PACKAGE, subject, call(*NO_LOG), checked, must, must_not, logs=files),
        repository,
    ]  # fmt: skip


def _parts(subject: Subject, scratch: Path) -> list[Task]:
    """Return the tasks of the tools that the package checker consists of."""
    assert isinstance(subject, SubmissionPackage)
    tasks = [task for n, results in enumerate(subject.sets) for task in run_tasks(results, scratch / f"set_{n}")]
    for number, description in enumerate(subject.descriptions):
        copies, name = SubjectCopies(scratch / f"system_{number}"), safe_name(description.path.name)
        copies.add(description.path, name, subject.ruleset)
        must = {r"(?m)^INFO -   System description checker passed for ": 1}
        arguments = [f"{FOLDER}/{name}", "training", subject.ruleset, *NO_LOG]
        tasks.append(Task(DESCRIPTION, str(description.path), arguments, copies, must, ("(?m)^ERROR",)))
    return tasks
