"""Arithmetic of a run's steps: model FLOP/s per accelerator, and their share of the peak (docs/facts/peers.md 1.0)."""

from dataclasses import dataclass

from benchmark.results.recorded_run import RecordedRun
from benchmark.results.score import Score
from model.flops import train_flops_per_token


@dataclass(frozen=True)
class Speed:
    """Of one run."""

    tflop_per_step: float | None
    """Per accelerator; None where batch, sequence length or the number of accelerators is not known."""
    peak_tflops: float | None
    """Dense BF16 peak of an accelerator; None where its model is not known."""


def speed_of(run: RecordedRun, score: Score | None) -> Speed:
    summary = run.summary
    batch, length, judged = summary.global_batch_size, summary.sequence_length, summary.judged
    if score is None or not score.accelerators or batch is None or length is None or judged is None:
        return Speed(None, None)
    flops = batch * length * train_flops_per_token(judged.benchmark.model)
    return Speed(flops / score.accelerators / 1e12, score.peak_tflops)
