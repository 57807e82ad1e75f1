"""Compute the result of a set of runs: score, tokens, speed.

Sources: docs/facts/mlperf_review.md 4.11, 5.6 (score); docs/facts/peers.md 1.0 (speed).
"""

import contextlib
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from benchmark.config.accelerators import ACCELERATORS, BF16_BITS, accelerator_named
from benchmark.config.number_formats import LOGGED_BITS, format_named
from benchmark.judging.results.judged import Judged
from benchmark.judging.results.run_summary import RunSummary
from benchmark.judging.results.subjects import ResultSet
from benchmark.run_record.events.log_in_folder import config_beside
from foundation.file_formats.json_files import DAMAGED

LINEAR_KEY = "lowest_numerical_precision_in_linear"
"""Key of MLPerf logs from ruleset 6.1.0 on."""
NARROWEST_BITS = 4


@dataclass(frozen=True)
class RunScore:
    """Figures of one run; None for figures that its log does not have."""

    path: str
    seed: int | None
    status: str | None
    minutes: float | None
    tokens: float | None
    evaluations: int
    last_log_perplexity: float | None
    init_s: float | None
    init_share: float | None
    """Initialisation over initialisation and run together; it is not in the score."""
    tokens_per_s: float | None
    """Tokens per second of the whole system, with evaluations on the clock."""
    step_s: float | None
    """Median seconds of the logged steps."""
    evaluation_share: float | None
    """Share of the run's time that evaluations take."""
    restarts: int


Timed = TypeVar("Timed", RunSummary, RunScore)


@dataclass(frozen=True)
class Score:
    """Result of a set of runs. Speeds are those of the middle run."""

    name: str
    benchmark: str
    submitter: str | None
    platform: str | None
    batch_size: float | None
    runs: tuple[RunScore, ...]
    measured_minutes: float | None
    """Mean time without the fastest and the slowest run, not scaled; a failed run is the slowest."""
    factor: float
    """Factor of the time: in a package, that of its scaling.json, as the official summarizer takes it; for other runs,
    that of the reference points, which the package checker would write there."""
    reference_factor: float
    """Factor of the reference points."""
    minutes: float | None
    """Score: measured minutes times the factor."""
    why_no_score: str | None
    accelerators: int | None
    accelerator: str | None
    tokens_per_s_per_accelerator: float | None
    tflops_per_accelerator: float | None
    """Model 10^12 FLOP/s of the training tokens alone, over the whole run."""
    mfu: float | None
    """Share of the peak below; None if the model is not in the table."""
    peak_format: str
    """Number format of the peak: the format that the middle run discloses for its linear layers, else BF16."""
    peak_tflops: float | None
    peak_source: str | None


def score(results: ResultSet) -> Score:
    """Return the score. It raises nothing: figures that cannot be computed are None."""
    runs = results.runs
    measured, why = _measured(runs, results.judged)
    reference_factor = results.convergence.factor
    factor = reference_factor if results.scaling is None else results.scaling.factor
    if factor is None and measured is not None:
        measured, why = None, f"scaling.json: {results.scaling.problem if results.scaling else ''}"
    middle = middle_run(runs)
    count, model = _accelerators(results)
    name = None if model is None else accelerator_named(model)
    hardware = None if name is None else ACCELERATORS[name]
    per_accelerator = None
    if middle is not None and middle.tokens_per_s is not None and count:
        per_accelerator = middle.tokens_per_s / count
    flops, disclosed = results.judged.flops_per_token, None if middle is None else disclosed_format(middle)
    bits = LOGGED_BITS.get(disclosed or "bfloat16", NARROWEST_BITS)
    peak_tflops = None if hardware is None else hardware.fastest_tflops(bits)
    tflops = None if per_accelerator is None else per_accelerator * flops / 1e12
    return Score(
        name=results.name,
        benchmark=results.judged.name,
        submitter=next((run.org for run in runs if run.org), None),
        platform=next((run.platform for run in runs if run.platform), None),
        batch_size=middle.global_batch_size if middle is not None else None,
        runs=tuple(run_score(run) for run in runs),
        measured_minutes=measured,
        factor=factor or 1.0,
        reference_factor=reference_factor,
        minutes=None if measured is None or factor is None else measured * factor,
        why_no_score=why,
        accelerators=count,
        accelerator=model,
        tokens_per_s_per_accelerator=per_accelerator,
        tflops_per_accelerator=tflops,
        mfu=None if tflops is None or peak_tflops is None else tflops / peak_tflops,
        peak_format="BF16" if bits == BF16_BITS else str(disclosed).upper(),
        peak_tflops=peak_tflops,
        peak_source=None if hardware is None else f"{name}: {hardware.source}",
    )


def disclosed_format(run: RunSummary) -> str | None:
    """Return the number format of the linear layers as MLPerf logs name it, from the log or from the config.json in the
    run's folder; None if neither says it."""
    logged = run.log.text(LINEAR_KEY)
    if logged is None:
        with contextlib.suppress(*DAMAGED, ValueError):
            return format_named(str(config_beside(run.log.path).get("precision"))).logged_linear
    return logged


def _measured(runs: Sequence[RunSummary], judged: Judged) -> tuple[float | None, str | None]:
    """Return the time as the official summarizer does: the mean of the middle runs; failed ones count as the
    slowest."""
    if len(runs) != judged.runs:
        return None, f"a score takes {judged.runs} runs, there {'is' if len(runs) == 1 else 'are'} {len(runs)}"
    good = [run.minutes for run in runs if run.minutes is not None and run.converged and run.reached is not None]
    lost = len(runs) - len(good)
    if lost > judged.score.dropped:
        return None, "more than one run did not converge"
    return judged.middle([*good, *[math.inf] * lost]), None


def middle_run(runs: Sequence[Timed]) -> Timed | None:
    """Return the run with the middle time; None if no run has a time."""
    timed = sorted((run for run in runs if run.minutes is not None), key=lambda run: run.minutes or 0)
    return timed[len(timed) // 2] if timed else None


def run_score(run: RunSummary) -> RunScore:
    """Return the figures of one run."""
    share = None
    timed = run.run_ms is not None and run.run_ms > 0
    if run.evaluation_s is not None and run.run_ms and timed:
        share = run.evaluation_s / (run.run_ms / 1000)
    steps = [entry.value for entry in run.step_seconds]
    values = [evaluation.log_perplexity for evaluation in run.evaluations if evaluation.log_perplexity is not None]
    return RunScore(
        path=str(run.log.path),
        seed=run.seeds[0] if run.seeds else None,
        status=run.status,
        minutes=run.minutes,
        tokens=run.trained_tokens,
        evaluations=len(run.evaluations),
        last_log_perplexity=values[-1] if values else None,
        init_s=run.init_s,
        init_share=run.init_s / (run.init_s + run.run_ms / 1000) if run.init_s and run.run_ms and timed else None,
        tokens_per_s=run.tokens_per_s,
        step_s=statistics.median(steps) if steps else None,
        evaluation_share=share,
        restarts=len(run.restarts),
    )


def _accelerators(results: ResultSet) -> tuple[int | None, str | None]:
    """Return number and model of the accelerators, from the system description or from the config.json in a run's
    folder."""
    if results.system is not None:
        return results.system.accelerators, results.system.string("accelerator_model_name")
    for path in results.files:
        with contextlib.suppress(*DAMAGED):
            system = config_beside(path)["system"]
            model = system.get("accelerator") or system["device"]
            return int(system["nodes"]) * int(system["devices_per_node"]), str(model)
    return None, None
