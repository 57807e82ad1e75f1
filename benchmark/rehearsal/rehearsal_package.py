"""Rehearse a submission: the runs of a result, a description of this machine, the package, and its review."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmark.config.benchmark_config import Benchmark
from benchmark.config.description_fields import FIELDS, MARK, STATUSES
from benchmark.config.number_formats import DEFAULT_PRECISION, Precision
from benchmark.judging.results.judged import JUDGED, Judged
from benchmark.judging.results.recorded_run import RecordedRun, read_recorded_run
from benchmark.judging.review.verdict import SubjectReview
from benchmark.judging.submission.package import make_package
from benchmark.rehearsal.rehearse import rehearse
from benchmark.run_record.file_names import SUMMARY_FILE
from foundation.errors import InputError
from foundation.git import commit_of
from foundation.outputs.publish import write_text

FILLED_IN = "made up for the rehearsal"
RESEARCH = next(status for status in STATUSES if status.startswith("Research"))


def rehearse_package(
    benchmark: Benchmark,
    work_dir: Path,
    describe: Callable[[], dict[str, Any]],
    *,
    master_port: int | None = None,
    precision: Precision = DEFAULT_PRECISION,
) -> int:
    """Make the runs that a result has, then package and review them; return 0 if the package passes, 1 if not, or the
    exit status of a run that failed.

    Finished runs of this commit and this number format in ``work_dir`` count. ``describe`` returns the description of
    this machine, in which marks stand for fields that a person has to fill in.
    """
    judged = JUDGED[benchmark.mlperf_name]
    runs = finished_runs(work_dir, precision)
    while len(runs) < judged.runs:
        print(f"\n=== run {len(runs) + 1} of {judged.runs} ===", flush=True)
        status = rehearse(benchmark, work_dir, master_port=master_port, precision=precision)
        if status:
            print(f"run {len(runs) + 1} of {judged.runs} ended with exit status {status}; no package is made")
            return status
        runs = finished_runs(work_dir, precision)
    return package_runs(benchmark, work_dir, runs[-judged.runs :], describe())


def finished_runs(work_dir: Path, precision: Precision) -> list[RecordedRun]:
    """Return the finished runs of this commit and this number format in the folder of a rehearsal, in the order of
    their numbers."""
    folders = [path.parent for path in work_dir.glob(f"run_*/{SUMMARY_FILE}")]
    folders.sort(key=lambda folder: int(folder.name.removeprefix("run_")))
    runs = [run for run in map(read_recorded_run, folders) if run.config.get("precision") == precision]
    return [run for run in runs if run.environment.get("commit") in (None, commit_of())]


def package_runs(benchmark: Benchmark, work_dir: Path, runs: Sequence[RecordedRun], description: dict[str, Any]) -> int:
    """Package and review the runs, and print score, verdict and the next step; return 0 if the package passes, else 1.

    The package is the next free folder package_N in ``work_dir``.
    """
    print("\n=== package ===", flush=True)
    org = runs[0].summary.org or "reference"
    system_json = work_dir / f"{runs[0].config['system']['name']}.json"
    write_text(system_json, json.dumps(filled_in(description, runs[0], org), indent=2, ensure_ascii=False) + "\n")
    number = 0
    while (work_dir / f"package_{number}").exists():
        number += 1
    output, logs = work_dir / f"package_{number}", [run.path for run in runs]
    try:
        review, text = make_package(org, system_json, logs, output, rehearsal=benchmark)
    except InputError as refusal:
        print(f"\n=== rehearsal of a submission: rejected ===\n  {refusal}")
        print(f"  next step: mend it; the runs in {work_dir} count again")
        return 1
    print(text)
    print("\n".join(last_lines(review, JUDGED[benchmark.mlperf_name], output)))
    return 0


def filled_in(description: dict[str, Any], run: RecordedRun, org: str) -> dict[str, Any]:
    """Return a description with the submitter and the layout of the run, whose marked fields say that they are made up.

    Each process of a run on CPUs counts as an accelerator.
    """
    system = run.config["system"]
    facts = {
        "submitter": org,
        "division": "closed",
        "status": RESEARCH,
        "system_name": run.summary.platform or system["name"],
        "number_of_nodes": str(system["nodes"]),
        "accelerators_per_node": str(system["devices_per_node"]),
    }
    if system["device"] == "cpu":
        facts["accelerator_model_name"] = "a process on the CPU"
    substitutes = {field.name: "" if field.optional else FILLED_IN for field in FIELDS}
    substitutes["host_processors_per_node"] = "1"
    marked = [name for name, value in description.items() if isinstance(value, str) and value.startswith(MARK)]
    return {**description, **{name: substitutes[name] for name in marked}, **facts}


def last_lines(review: SubjectReview, judged: Judged, output: Path) -> list[str]:
    """Return the lines that end the rehearsal: score, verdict, official tools and the next step."""
    (score,) = review.scores
    minutes = score.why_no_score if score.minutes is None else f"{score.minutes:.3f} minutes"
    inapplicable_tools = ", ".join(review.declined)
    tools = ", ".join(dict.fromkeys(check.tool for check in review.checks))
    return [
        f"\n=== rehearsal of a submission: {review.verdict} ===",
        f"  score           {minutes}: the mean of {judged.runs} runs without the fastest and the slowest",
        f"  official tools  {tools} passed, ruleset {review.ruleset}; not for a rehearsal: {inapplicable_tools}",
        f"  package         {output}, which is no submission: the commands package and review refuse it",
        f"  next step       the same with {judged.stands_for}: its data, {judged.runs} runs on the measured machine,",
        "                  describe-system with every mark filled in, review, package",
    ]
