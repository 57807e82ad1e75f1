"""``plan --search`` and ``plan --backtest`` as they are called."""

import json

import pytest

from benchmark.__main__ import main
from stage.errors import InputError


def test_backtest_needs_no_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--backtest", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["comparisons"]
    assert {"id", "stack", "url", "published_s", "predicted_s", "error", "used", "guessed"} <= rows[0].keys()


def test_another_stack_without_a_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "gpt3_175b", "--global-batch-size", "2048", "--pipeline-chunks", "6", "--stack", "nemo"]
    assert main([*words, "--precision", "fp8", "--watts", "1400", "--dollars-per-hour", "2.5", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["precision"], made["stack"], made["dry_run"]) == ("fp8", "nemo", None)
    assert made["step_s"] > 0
    assert made["mfu"] > 0.6
    assert made["costs"]["kwh_interval"][0] < made["costs"]["kwh"] < made["costs"]["kwh_interval"][1]


def test_bad_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="stack ours has no fp8"):
        main(["plan", "gpt3_175b", "--precision", "fp8"])
    with pytest.raises(InputError, match="leave out --mfu"):
        main(["plan", "gpt3_175b", "--search", "--mfu", "0.4"])
    with pytest.raises(InputError, match="--search: the memory of the device is not known"):
        main(["plan", "rehearsal", "--search"])
    assert capsys.readouterr().out == ""
