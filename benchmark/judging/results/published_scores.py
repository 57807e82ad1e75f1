"""The published scores of a benchmark on some number of devices, which a plan is compared with."""

from benchmark.config.accelerators import accelerator_named
from benchmark.judging.results.frames import published_frame, systems_frame

SHOWN_SCORES = 4


def published_scores(mlperf_name: str, accelerator: str, devices: int) -> list[str]:
    """Return the scores on as many such devices as "49.80 min (NVIDIA, 4.1)", fastest first, at most
    ``SHOWN_SCORES``. ``mlperf_name``: the benchmark in the MLPerf log."""
    published = published_frame()
    systems = systems_frame(published[published["submission_benchmark"] == mlperf_name])
    systems = systems[systems["accelerators_count"] == devices].sort_values("score_minutes", kind="stable")
    scores: dict[str, str] = {}  # a result that was submitted twice counts once
    for minutes, submitter, mlperf_round, model in systems[
        ["score_minutes", "package", "round", "accelerator_model_name"]
    ].itertuples(index=False):
        if accelerator_named(model) == accelerator:
            scores.setdefault(f"{minutes:.2f}", f"{submitter}, {mlperf_round}")
    return [f"{minutes} min ({submitter})" for minutes, submitter in list(scores.items())[:SHOWN_SCORES]]
