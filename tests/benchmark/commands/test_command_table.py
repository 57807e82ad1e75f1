"""Which command the arguments name, with which options."""

import json
from pathlib import Path
from typing import Literal

import pytest

from benchmark.__main__ import main
from benchmark.commands.command_table import parse
from benchmark.commands.plan_commands import FirstContactCommand, PlanCommand, PreflightCommand
from benchmark.commands.run_commands import ScheduleCommand
from benchmark.planning.first_contact import first_contact
from benchmark.planning.first_contact.first_contact import ContactResult, PartResult
from foundation.errors import InputError

DO_NOT_FIT = ["gpt3_175b", "--global-batch-size", "1537"]


@pytest.mark.parametrize("name", ["train", "evaluate", "plan", "preflight"])
def test_sizes_that_do_not_fit_the_devices_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="global_batch_size 1537 is not a multiple"):
        parse([name, *DO_NOT_FIT])


def test_schedule_and_search_take_what_the_layout_does_not() -> None:
    made = parse(["schedule", *DO_NOT_FIT])
    assert isinstance(made, ScheduleCommand)
    assert made.config.benchmark.global_batch_size == 1537
    assert isinstance(parse(["plan", "gpt3_175b", "--nodes", "5", "--search"]), PlanCommand)


@pytest.mark.parametrize("name", ["train", "evaluate", "plan", "preflight"])
def test_fp8_is_refused_where_the_accelerator_has_none(name: str) -> None:
    words = [name, "gpt3_175b", "--precision", "fp8"]
    assert vars(parse(words))["config"].precision == "fp8"
    with pytest.raises(InputError, match=r"A100-80GB has no FP8; accelerators with FP8: .*H100 SXM"):
        parse([*words, "--system", "dgxa100_n64"])


def test_preflight_without_a_benchmark_checks_the_machine() -> None:
    assert parse(["preflight", "--json"]) == PreflightCommand(json=True)
    named = parse(["preflight", "rehearsal", "--json"])
    assert isinstance(named, PreflightCommand)
    assert named.json and named.config is not None


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("report", "--output"),
        ("package", "--org"),
        ("describe-system --out-put x", "--out-put"),
        ("rehearse --seed x", "--seed"),
    ],
)
def test_missing_unknown_and_wrong_options_are_named(words: str, named: str) -> None:
    with pytest.raises(InputError, match=named):
        parse(words.split())


@pytest.mark.parametrize(("outcome", "status"), [("ok", 0), ("failed", 1)])
def test_the_status_of_a_first_contact_tells_whether_all_works(
    outcome: Literal["ok", "failed"], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = ContactResult("1 x NVIDIA H200", "2.11.0", "now", [PartResult("features", outcome, "said", 1.0)])
    monkeypatch.setattr(first_contact, "first_contact", lambda *_: result)
    monkeypatch.setattr("benchmark.commands.plan_commands.require_gpu", lambda *_: None)
    assert FirstContactCommand(output=Path("there")).run() == status
    assert capsys.readouterr().out.endswith("all works: there/contact.json\n")
    assert main(["preflight", "--first-contact", "--json"]) == status
    assert json.loads(capsys.readouterr().out)["passed"] is (status == 0)
    for minutes in (0.0, float("nan"), 1e9):
        with pytest.raises(InputError, match=r"minutes .*: expected more than 0, at most 1,440; change --minutes"):
            FirstContactCommand(minutes=minutes).run()
