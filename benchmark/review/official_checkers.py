"""Which official tool applies to what, how it is called, and what proves that it ran and passed.

Commands and proofs: docs/facts/mlperf_review.md 4.10.

Tools get copies in a scratch folder, under names that crash none of them: the package checker and the summarizer write
into what they check, and the summarizer reads the scaling.json that the package checker wrote.
"""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmark.results.convergence import SUBMITTED_RUNS
from benchmark.results.mllog import MOST_BYTES
from benchmark.results.score import score
from benchmark.results.subjects import BENCHMARK, MOST_FILES, ResultSet, Subject, SubmissionPackage, subfolders
from benchmark.review.official_tools import Proof, Task, ToolVerdict, run_task
from benchmark.review.rehearsal_rules import rehearsal_rules

SEED_CHECK = Path(__file__).with_name("seed_check.py")
MOST_PARALLEL = 4
SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")
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


def run_checkers(subjects: Sequence[Subject]) -> list[list[ToolVerdict]]:
    """The checks of every official tool that applies, per subject, a few processes at a time."""
    workers = min(MOST_PARALLEL, os.cpu_count() or 1)
    with ThreadPoolExecutor(workers) as pool, tempfile.TemporaryDirectory(prefix="review-") as scratch:
        planned = []
        for number, subject in enumerate(subjects):
            folder = Path(scratch, str(number))
            chains = (
                _package_tasks(subject, folder)
                if isinstance(subject, SubmissionPackage)
                else _set_tasks(subject, folder)
            )
            planned.append([pool.submit(_run_chain, chain) for chain in chains])
        return [[check for chain in chains for check in chain.result()] for chains in planned]


def _run_chain(tasks: Sequence[Task]) -> list[ToolVerdict]:
    """Tasks that need each other's files, one after the other."""
    return [run_task(task) for task in tasks]


def check_file(path: Path, ruleset: str) -> ToolVerdict:
    """The compliance checker on one result file."""
    with tempfile.TemporaryDirectory(prefix="review-") as scratch:
        one = ResultSet(path.name, ruleset, (path,), None)
        return _run_chain(next(iter(_compliance_tasks(one, Path(scratch)))))[0]


def _set_tasks(one: ResultSet, scratch: Path) -> list[list[Task]]:
    chains = list(_compliance_tasks(one, scratch))
    folder = scratch / "runs" / BENCHMARK
    for tool, task in ((SEED, _seed_task), (RCP, _rcp_task)):
        if tool.declines(one) is None:
            chains.append([task(one, folder, _copy_results(one, folder))])
    return chains


def _compliance_tasks(one: ResultSet, scratch: Path) -> Iterator[list[Task]]:
    for number, path in enumerate(one.files):
        folder = scratch / f"file_{number}"
        renamed = _copy(path, folder / "result_0.txt")
        copied = folder / "result_0.txt"
        arguments = ["-m", COMPLIANCE.module, "--usage", "training", "--ruleset", one.ruleset, *NO_LOG]
        notes: tuple[str, ...] = ()
        judged = one.runs[number].judged
        if judged is None or judged.official:
            rules = f"training_{one.ruleset}/(closed|open)_gpt3.yaml"
        else:
            config, replaced = rehearsal_rules(one.ruleset, folder / "rules")
            arguments += ["--config", str(config)]
            notes = (f"rehearsal: the official rules for {', '.join(replaced)} do not apply",)
            rules = "closed_gpt3.yaml"
        proof = Proof(
            must={
                rf"(?m)^INFO - Running compliance on file: {re.escape(str(copied))}": 1,
                rf"(?m)^INFO -  Compliance checks: .*{rules}": 1,
                r"(?m)^INFO - SUCCESS$": 1,
            },
            must_not=(r"(?m)^ERROR", "FAILED"),
        )
        yield [Task(COMPLIANCE.name, str(path), [*arguments, str(copied)], proof, renamed, notes)]


def _seed_task(one: ResultSet, folder: Path, renamed: dict[str, str]) -> Task:
    files = sorted(str(path) for path in folder.glob("result_*.txt"))
    proof = Proof({f"(?m)^SEED CHECKER PASSED on {len(one.files)} files$": 1, "Running Seed Checker": 1}, ("ERROR",))
    return Task(SEED.name, _subject(one), [SEED.module, one.ruleset, *files], proof, renamed)


def _rcp_task(one: ResultSet, folder: Path, renamed: dict[str, str]) -> Task:
    arguments = ["-m", RCP.module, str(folder), "--rcp_usage", "training", "--rcp_version", one.ruleset, *NO_LOG]
    proof = Proof({r"(?m)^INFO - .*, RCP test PASSED$": 1}, ("(?i)bypass", "(?m)^ERROR"))
    return Task(RCP.name, _subject(one), arguments, proof, renamed)


def _subject(one: ResultSet) -> str:
    return str(one.folder or one.name)


def _package_tasks(package: SubmissionPackage, scratch: Path) -> list[list[Task]]:
    """Tools for the parts, and a chain for the whole: the package checker, then the summarizer on what it leaves."""
    chains = [chain for number, one in enumerate(package.sets) for chain in _set_tasks(one, scratch / f"set_{number}")]
    copied, renamed, notes = _copy_package(package, scratch / "package")
    descriptions = sorted((copied / "systems").glob("*.json"))
    for path in descriptions:
        proof = Proof({r"(?m)^INFO -   System description checker passed for ": 1}, ("(?m)^ERROR",))
        arguments = ["-m", DESCRIPTION.module, str(path), "training", package.ruleset, *NO_LOG]
        subject = renamed.get(str(path), str(path))
        chains.append([Task(DESCRIPTION.name, subject, arguments, proof, renamed)])
    files = sum(len(one.files) for one in package.sets)
    closed = [one for one in package.sets if one.system is not None and one.system.string("division") == "closed"]
    proof = Proof(
        must={
            "(?m)^INFO -   System description checker passed for ": len(descriptions),
            "(?m)^INFO -  Running compliance checks in dir ": max(1, len(package.sets)),
            "(?m)^INFO - Running compliance on file: ": files,
            "(?m)^INFO -  Compliance checks: .*_gpt3.yaml": files,
            "(?m)^INFO -  Running Seed Checker": len(closed),
            "(?m)^INFO - RCP Test Passed: ": len(closed),
            "(?m)^INFO - PACKAGE CHECKER FOUND NO ERRORS, SUCCESS !": 1,
        },
        must_not=("Skipping benchmark", "(?i)bypass", "PACKAGE CHECKER FOUND ERRORS", "(?m)^ERROR"),
    )
    checker = ["-m", PACKAGE.module, str(copied), "training", package.ruleset, *NO_LOG]
    csv = scratch / "s.csv"
    summarizer = ["-m", SUMMARIZER.module, str(copied), "training", package.ruleset]
    chains.append(
        [
            Task(PACKAGE.name, str(package.path), checker, proof, renamed, notes),
            Task(
                SUMMARIZER.name,
                str(package.path),
                [*summarizer, "--csv", str(csv)],
                Proof(must_not=("ERROR:",)),
                renamed,
                notes,
                afterwards=lambda: _score_differs(package, csv, renamed),
            ),
        ]
    )
    repository = ["-m", REPOSITORY.module, str(package.path), "training", package.ruleset, *NO_LOG]
    proof = Proof({r"(?m)^INFO - ALL CHECKS PASSED\.$": 1}, ("CHECKS FAILED", "(?m)^ERROR"))
    chains.append([Task(REPOSITORY.name, str(package.path), repository, proof, {})])
    return chains


def _score_differs(package: SubmissionPackage, csv: Path, renamed: dict[str, str]) -> list[str]:
    """Whether the summarizer's table lacks a system, or has another time than ours."""
    path = csv.with_name("s_detailed.json")
    if not path.is_file():
        return ["it wrote no table of scores"]
    rows = {Path(str(row.get("details_url"))).stem: row for row in json.loads(path.read_text("utf-8"))}
    wrong = []
    for one in package.sets:
        names = [Path(scratch).name for scratch, real in renamed.items() if Path(real).name == one.name]
        row = rows.get(names[0] if names else one.name)
        minutes = None if row is None else row.get(f"{BENCHMARK}:time_to_train")
        ours = score(one).minutes
        if not isinstance(minutes, int | float):
            wrong.append(f"no score for {one.name}")
        elif ours is None or abs(minutes - ours) > MINUTES_TOLERANCE:
            wrong.append(f"{one.name}: {minutes:.4f} minutes, but the logs and the reference points give {ours}")
    if not package.sets:
        wrong.append(f"no {BENCHMARK} results to summarize")
    return wrong


def _copy_package(package: SubmissionPackage, scratch: Path) -> tuple[Path, dict[str, str], tuple[str, ...]]:
    """systems/, results/ of gpt3 and of folders no tool knows, under safe names; real name of each copy, and notes."""
    notes: list[str] = []
    renamed: dict[str, str] = {}

    def copy_as(path: Path, stand_in: str) -> str:
        if SAFE_NAME.fullmatch(path.name):
            return path.name
        notes.append(f"{path.name!r} went to the tools as {stand_in}: they take its characters for a pattern")
        return stand_in

    root = scratch / copy_as(package.path, "SUBMITTER")
    renamed[str(root)] = str(package.path)
    for name in ("systems", "results"):
        if (package.path / name).is_dir():
            (root / name).mkdir(parents=True)
    for description in package.descriptions:
        renamed |= _copy(description.path, root / "systems" / _safe_stem(description.path))
    for system in subfolders(package.results):
        folder = root / "results" / copy_as(system, _safe(system.name))
        folder.mkdir()
        renamed[str(folder)] = str(system)
        _copy_parameters(system, folder)
        for benchmark in subfolders(system):
            if benchmark.name == BENCHMARK or not _is_other_benchmark(benchmark.name, package.ruleset):
                _copy_tree(benchmark, folder / _safe(benchmark.name), renamed)
    return root, renamed, tuple(notes)


def _is_other_benchmark(name: str, ruleset: str) -> bool:
    from mlperf_logging.benchmark_meta import get_allowed_benchmarks

    return name in get_allowed_benchmarks("training", ruleset)


def _safe(name: str) -> str:
    return name if SAFE_NAME.fullmatch(name) else re.sub(r"[^A-Za-z0-9._+-]", "_", f"_{name}")


def _safe_stem(path: Path) -> str:
    return f"{_safe(path.stem)}{path.suffix}"


def _copy_parameters(source: Path, folder: Path) -> None:
    path = source / "package_checker_params"
    if path.is_file():
        _copy(path, folder / path.name)


def _copy_tree(source: Path, folder: Path, renamed: dict[str, str], depth: int = 3) -> None:
    """Regular files and links to them; power logs lie two folders deeper."""
    folder.mkdir(parents=True, exist_ok=True)
    renamed[str(folder)] = str(source)
    for path in sorted(source.iterdir()):
        if path.is_file() and path.stat().st_size <= MOST_BYTES:
            renamed |= _copy(path, folder / _safe(path.name))
        elif path.is_dir() and not path.is_symlink() and depth > 0:
            _copy_tree(path, folder / _safe(path.name), renamed, depth - 1)


def _copy_results(one: ResultSet, folder: Path) -> dict[str, str]:
    renamed: dict[str, str] = {}
    for number, path in enumerate(one.files):
        renamed |= _copy(path, folder / f"result_{number}.txt")
    return renamed


def _copy(path: Path, target: Path) -> dict[str, str]:
    """Copy a file that is not too large, else leave an empty one: the tools then fail on it, as they should."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.stat().st_size <= MOST_BYTES:
        shutil.copyfile(path, target)
    else:
        target.touch()
    return {str(target): str(path)}
