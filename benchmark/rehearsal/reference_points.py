"""Convergence points of a benchmark: how long its runs took to the target, in the official file format.

Mean, deviation and the smallest accepted median are written as well, under the names that the official checker gives
them; it computes them itself, as ``review`` does.
"""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark.config.benchmark_config import Benchmark
from benchmark.judging.results.convergence import make_point
from benchmark.rehearsal.rehearse import rehearse
from benchmark.run_record.file_names import CONFIG_FILE, SUMMARY_FILE
from foundation.errors import CheckFailed, InputError
from foundation.file_formats.json_files import read_json
from foundation.outputs.publish import write_text

FEWEST_FOR_A_TEST = 4
"""Fewest runs for a test: without the fastest and the slowest, two are left to compare with."""
PROGRESS = {"epoch_num": "trained_tokens", "samples_count": "trained_samples"}
"""Names in a summary of the unit in which a benchmark's log counts progress."""
SAME_IN_ALL = ("name", "global_batch_size", "target_log_perplexity", "optimizer", "model")


def rehearse_seeds(benchmark: Benchmark, seeds: int, work_dir: Path) -> list[Path]:
    """Rehearse until ``work_dir`` has ``seeds`` finished runs, each with a new seed; return their folders.

    Raises CheckFailed when one of them does not reach its target or does not pass the review.
    """
    while (have := len(list(work_dir.glob(f"run_*/{SUMMARY_FILE}")))) < seeds:
        print(f"=== run {have + 1} of {seeds}", flush=True)
        status = rehearse(benchmark, work_dir)
        if status:
            raise CheckFailed(f"run {have + 1} of {seeds} ended with exit status {status}; see {work_dir}")
    return sorted(path.parent for path in work_dir.glob(f"run_*/{SUMMARY_FILE}")) if seeds else []


def write_reference_points(runs: Sequence[Path], output: Path) -> str:
    """Write the points of finished runs to ``output`` and return a line of figures.

    Raises InputError for a run that is not finished, did not reach its target, or is of another benchmark.
    """
    benchmarks, progress_values, samples = [], [], []
    for run in runs:
        summary, config = _read(run / SUMMARY_FILE), _read(run / CONFIG_FILE)
        if summary["status"] != "success":
            raise InputError(f"{run}: {summary['status']}; a reference point is a run that reached its target")
        benchmarks.append(config["benchmark"])
        progress_values.append(summary[PROGRESS[benchmarks[-1]["log_keys"]["progress"]]])
        samples.append(summary["trained_samples"])
        for name in SAME_IN_ALL:
            if benchmarks[-1][name] != benchmarks[0][name]:
                raise InputError(f"{run}: {name} is {benchmarks[-1][name]}, but {benchmarks[0][name]} in {runs[0]}")
    if not progress_values:
        raise InputError("no run folder given; name folders of finished runs, or say how many to make with --seeds")
    benchmark = benchmarks[0]
    size = benchmark["global_batch_size"]
    points = {
        f"{benchmark['name']}_ref_{size}": {
            "Benchmark": benchmark["mlperf_name"],
            "BS": size,
            "Hyperparams": {
                "opt_base_learning_rate": benchmark["optimizer"]["lr"],
                "opt_end_learning_rate": benchmark["optimizer"]["min_lr"],
                "target_log_perplexity": benchmark["target_log_perplexity"],
            },
            "Epochs to converge": progress_values,
        }
    }
    accepted = ""
    if len(progress_values) >= FEWEST_FOR_A_TEST:
        point = make_point(size, benchmark["optimizer"]["lr"], progress_values)
        statistics_of_it = {"RCP Mean": point.mean, "RCP Stdev": point.deviation, "Min Epochs": point.least}
        next(iter(points.values())).update(statistics_of_it)
        accepted = f", accepted from {point.least * samples[0] / progress_values[0]:.1f}"
    write_text(output, json.dumps(points, indent=1) + "\n")
    deviation = statistics.stdev(samples) if len(samples) > 1 else 0.0
    figures = f"samples to target {statistics.mean(samples):.1f}, sd {deviation:.1f}{accepted}"
    return f"{len(samples)} runs, {figures}: {samples}"


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = read_json(path, dict)
        return content
    except FileNotFoundError:
        raise InputError(f"{path}: missing; the run is not finished") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error})") from error
