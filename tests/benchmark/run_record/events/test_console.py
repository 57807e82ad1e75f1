"""Lines for people."""

import re
import sys

import pytest

from benchmark.run_record.events.console import Console
from benchmark.run_record.events.event import Event
from tests.benchmark.run_record.events.recorder import event

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
STEP_LINE = "step 4  4%  loss 2.7500  norm 0.250  lr 2.00e-05  1.50 s  2,097,152 tokens/s  MFU 40.4%"


def lines_of(console_events: list[Event], capsys: pytest.CaptureFixture[str], log_interval: int = 1) -> list[str]:
    """What people see, without the times, which are looked at on the way."""
    console = Console(log_interval, expected_steps=100)
    for one in console_events:
        console.write(one)
    console.close()
    lines = capsys.readouterr().out.splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d \S", line) for line in lines)
    return [line[9:] for line in lines]


def test_steps_at_the_interval(capsys: pytest.CaptureFixture[str]) -> None:
    steps = [event("step", steps=number, **STEP) for number in range(3, 6)]
    steps.append(event("step", steps=6, **{**STEP, "mfu": None}))
    steps.append(event("step", steps=8, **{**STEP, "skipped": True}))
    assert lines_of(steps, capsys, log_interval=2) == [
        STEP_LINE,
        STEP_LINE.replace("step 4  4%", "step 6  6%").replace("MFU 40.4%", "400 TFLOP/s"),
        STEP_LINE.replace("step 4  4%", "step 8  8%").replace("MFU 40.4%", "SKIPPED: not finite"),
    ]


def test_row_of_skipped_steps_has_one_line_and_lines_have_at_most_100_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = [event("step", **{**STEP, "steps": 4 + n, "skipped": n > 0, "skipped_in_a_row": n}) for n in (1, 2, 3, 0)]
    row.append(event("step", **{**STEP, "steps": 10_464, "tokens_per_s": 999_999.0}))
    first, last, full = lines_of(row, capsys)
    assert (first.split("  ")[0], last.split("  ")[0]) == ("step 5", "step 4")
    assert len("12:34:56 " + full.replace("10464%", "100%")) <= 100


def test_what_went_wrong_is_red_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    console = Console(1, 100)
    for one in (event("message", "fine"), event("message", "damaged", wrong=True)):
        console.write(one)
    fine, damaged = capsys.readouterr().out.splitlines()
    assert "\x1b" not in fine
    assert damaged.startswith("\x1b[31m") and damaged.endswith("damaged\x1b[0m")


def test_evaluations_checkpoints_and_messages(capsys: pytest.CaptureFixture[str]) -> None:
    evaluated = {"trained_tokens": 50_331_648, "log_perplexity": 2.7189, "seconds": 9.87}
    told = [
        event("evaluation", **evaluated, target=2.69),
        event("evaluation", **evaluated, target=None),
        event("checkpoint", steps=500, seconds=0.78),
        event("message", "target reached"),
        event("run_start"),
    ]
    assert lines_of(told, capsys) == [
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


def test_when_the_target_or_the_end_is_expected_stands_below_an_evaluation(capsys: pytest.CaptureFixture[str]) -> None:
    sure = {**ETA, "target_tokens_low": 1_207_959_552, "target_tokens_high": 1_207_959_552}
    late = {**sure, "seconds_low": 4321.0, "seconds_high": 4321.0, "reaches_target": False}
    told = [ETA, {**ETA, "after": "step"}, late, {**late, "target": None}]
    assert lines_of([event("eta", **one) for one in told], capsys) == [
        "target expected after 1,207,959,552 tokens (1,157,627,904 to 1,258,291,200), in 1 h 12 min (1 h 5 min to 1 h "
        "20 min)",
        "target not expected before the end of training after 1,207,959,552 tokens, in 1 h 12 min",
        "end of training expected after 1,207,959,552 tokens, in 1 h 12 min",
    ]
