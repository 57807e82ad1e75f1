"""The published scores of a benchmark on some number of devices, which a plan is compared with."""

from benchmark.config.accelerators import accelerator_named
from benchmark.config.number_formats import NUMBER_FORMATS, Precision
from benchmark.judging.results.frames import published_frame, systems_frame

SHOWN_SCORES = 4


def published_format(package: str, mlperf_round: str) -> str:
    """Return the number format of the published GPT-3 results of a submitter, by the code that it submitted
    (docs/facts/peers.md 1.1); no log names it."""
    if package == "Google":
        return "int8"
    if (mlperf_round, package) == ("3.0", "Intel-HabanaLabs"):
        return "BF16"
    return "FP8"


def published_scores(mlperf_name: str, accelerator: str, devices: int, precision: Precision) -> list[str]:
    """Return the scores on as many such devices as "49.80 min in FP8 (NVIDIA, 4.1)", at most ``SHOWN_SCORES``: those of
    the same number format first, and then fastest first. ``mlperf_name``: the benchmark in the MLPerf log."""
    published = published_frame()
    systems = systems_frame(published[published["submission_benchmark"] == mlperf_name])
    systems = systems[systems["accelerators_count"] == devices].sort_values("score_minutes", kind="stable")
    scores: dict[str, tuple[str, str]] = {}  # a result that was submitted twice counts once
    for minutes, submitter, mlperf_round, model in systems[
        ["score_minutes", "package", "round", "accelerator_model_name"]
    ].itertuples(index=False):
        if accelerator_named(model) == accelerator:
            number_format = published_format(submitter, mlperf_round)
            scores.setdefault(f"{minutes:.2f}", (number_format, f"{submitter}, {mlperf_round}"))
    title = NUMBER_FORMATS[precision].title
    ordered = sorted(scores.items(), key=lambda score: score[1][0] != title)
    return [f"{minutes} min in {name} ({submitter})" for minutes, (name, submitter) in ordered[:SHOWN_SCORES]]
