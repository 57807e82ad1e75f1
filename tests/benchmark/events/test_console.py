"""Lines for people."""

import pytest

from benchmark.events.console import Console, spoken_duration
from tests.benchmark.events.recorder import event

STEP = {
    "consumed_samples": 6_145_536,
    "loss": 2.75,
    "grad_norm": 0.25,
    "learning_rate": 2e-5,
    "step_s": 1.5,
    "tokens_per_s": 2_097_152.0,
    "tflops_per_device": 400.0,
    "mfu": 0.404,
    "memory_gib": 60.0,
    "skipped": False,
}
STEP_LINE = (
    "step 4 | samples 6,145,536 | loss 2.7500 | grad norm 0.250 | lr 2.000e-05 | 1.500 s | 2,097,152 tokens/s "
    "| 400.00 TFLOP/s per device | MFU 40.4% | 60.00 GiB"
)


def test_steps_at_the_interval(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(log_interval=2)
    for iteration in range(3, 6):
        console.write(event("step", iteration=iteration, **STEP))
    console.write(event("step", iteration=6, **{**STEP, "mfu": None, "skipped": True}))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == STEP_LINE
    assert lines[1] == (
        STEP_LINE.replace("step 4", "step 6").replace(" | MFU 40.4%", "") + " | SKIPPED: gradients are not finite"
    )
    assert len(lines) == 2


def test_row_of_skipped_steps_has_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(log_interval=1)
    for in_a_row in (1, 2, 3, 0):
        step = {**STEP, "iteration": 4 + in_a_row, "skipped": in_a_row > 0, "skipped_in_a_row": in_a_row}
        console.write(event("step", **step))
    assert [line.split(" | ")[0] for line in capsys.readouterr().out.splitlines()] == ["step 5", "step 4"]


def test_evaluations_checkpoints_and_messages(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(log_interval=1)
    evaluated = {"trained_tokens": 50_331_648, "log_perplexity": 2.7189, "seconds": 9.87}
    console.write(event("evaluation", **evaluated, target=2.69))
    console.write(event("evaluation", **evaluated, target=None))
    console.write(event("checkpoint", steps=500, seconds=0.78))
    console.write(event("message", "target reached"))
    console.write(event("run_start"))
    console.close()
    assert capsys.readouterr().out.splitlines() == [
        "evaluation after 50,331,648 tokens: log perplexity 2.71890 (target 2.69) in 9.87 s",
        "evaluation after 50,331,648 tokens: log perplexity 2.71890 in 9.87 s",
        "checkpoint after 500 steps: training paused 0.780 s",
        "target reached",
    ]


ETA = {
    "after": "evaluation",
    "target": 2.69,
    "target_tokens": 1_207_959_552,
    "target_tokens_low": 1_157_627_904,
    "target_tokens_high": 1_258_291_200,
    "seconds": 4321.0,
    "seconds_low": 3900.0,
    "seconds_high": 4800.0,
    "reaches_target": True,
}


def test_time_to_target_stands_below_an_evaluation_and_in_a_step_line(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(log_interval=2)
    console.write(event("eta", **ETA))
    console.write(event("eta", **{**ETA, "after": "step", "seconds": 200.0}))
    for iteration in (3, 4, 6):
        console.write(event("step", iteration=iteration, **STEP))
    assert capsys.readouterr().out.splitlines() == [
        "target expected after 1,207,959,552 tokens (1,157,627,904 to 1,258,291,200), in 1 h 12 min (1 h 5 min to 1 h "
        "20 min)",
        f"{STEP_LINE} | target in 3 min 20 s",
        STEP_LINE.replace("step 4", "step 6"),
    ]


def test_time_to_the_end_where_the_target_is_not_expected(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(log_interval=1)
    same = {**ETA, "target_tokens_low": 1_207_959_552, "target_tokens_high": 1_207_959_552}
    late = {**same, "seconds_low": 4321.0, "seconds_high": 4321.0, "reaches_target": False}
    console.write(event("eta", **late))
    console.write(event("eta", **{**late, "target": None}))
    assert capsys.readouterr().out.splitlines() == [
        "target not expected before the end of training after 1,207,959,552 tokens, in 1 h 12 min",
        "end of training expected after 1,207,959,552 tokens, in 1 h 12 min",
    ]


def test_durations() -> None:
    assert [spoken_duration(seconds) for seconds in (-5, 0.4, 59.4, 59.6, 3599, 3600, 7199.9)] == [
        "0 s",
        "0 s",
        "59 s",
        "1 min 0 s",
        "59 min 59 s",
        "1 h 0 min",
        "2 h 0 min",
    ]
