"""Define the columns of the table of runs, and make a run's row from its log, its system's description and its score.

Names are stable: columns are added, never renamed. docs/results.md explains each column.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark.results.run_summary import RunSummary
from benchmark.results.score import Score, run_score
from benchmark.results.subjects import ResultSet
from model.flops import train_flops_per_token

PUBLISHED_RUNS = Path(__file__).with_name("published_runs.csv")
"""Table of runs of rounds 3.0 to 4.1, as ``python -m benchmark.results.write_published`` makes it."""
TIME = "datetime64[ms, UTC]"
RUN_TYPES = {
    **dict.fromkeys(("round", "package", "system_folder", "file", "submitter", "division", "availability"), "string"),
    "accelerator_model_name": "string",
    "accelerators_count": "Int64",
    "framework": "string",
    "submission_benchmark": "string",
    "seed": "Int64",
    "submission_org": "string",
    "submission_platform": "string",
    "global_batch_size": "Int64",
    "run_started": TIME,
    "status": "string",
    **dict.fromkeys(("minutes", "init_s", "tokens"), "Float64"),
    "evaluations": "Int64",
    **dict.fromkeys(("evaluation_tokens", "evaluation_values", "evaluation_ms"), "string"),
    **dict.fromkeys(("last_log_perplexity", "tokens_per_s_per_accelerator", "mfu"), "Float64"),
    "restarts": "Int64",
    **dict.fromkeys(("measured_minutes", "scaling_factor", "score_minutes"), "Float64"),
    "convergence": "string",
}
"""Pandas type of each column; a value of another kind counts as missing."""


def run_record(one: ResultSet, system: Score, run: RunSummary) -> dict[str, Any]:
    """Return the row of a run; ``system`` is the score of the set that it belongs to."""
    described = {} if one.system is None else one.system.content
    scored, start, speed, mfu = run_score(run), run.run_start_ms, None, None
    if run.tokens_per_s is not None and system.accelerators:
        speed = run.tokens_per_s / system.accelerators
    if speed is not None and system.peak_tflops:
        mfu = speed * train_flops_per_token(one.judged.model) / 1e12 / system.peak_tflops
    return {
        "round": one.ruleset.rpartition(".")[0],
        "package": one.package,
        "system_folder": one.name,
        "file": run.log.path.name,
        "submitter": described.get("submitter") or run.org,
        "division": described.get("division") or run.division,
        "availability": described.get("status") or run.log.text("submission_status"),
        "accelerator_model_name": system.accelerator,
        "accelerators_count": system.accelerators,
        "framework": described.get("framework"),
        "submission_benchmark": run.benchmark,
        "seed": scored.seed,
        "submission_org": run.org,
        "submission_platform": run.platform,
        "global_batch_size": run.global_batch_size,
        "run_started": start,
        "status": run.status,
        "minutes": run.minutes,
        "init_s": run.init_s,
        "tokens": run.trained_tokens,
        "evaluations": scored.evaluations,
        "evaluation_tokens": _series([each.tokens for each in run.evaluations]),
        "evaluation_values": _series([each.log_perplexity for each in run.evaluations]),
        "evaluation_ms": _series([each.time_ms - (start or 0) for each in run.evaluations]),
        "last_log_perplexity": scored.last_log_perplexity,
        "tokens_per_s_per_accelerator": speed,
        "mfu": mfu,
        "restarts": scored.restarts,
        "measured_minutes": system.measured_minutes,
        "scaling_factor": system.factor,
        "score_minutes": system.minutes,
        "convergence": one.convergence.standing,
    }


def _series(values: Sequence[float | None]) -> str | None:
    """Return numbers separated by spaces, with a dash for a missing one."""
    return " ".join("-" if value is None else f"{value:.10g}" for value in values) or None
