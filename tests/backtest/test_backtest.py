"""The backtest: errors as promised, rows that are possible, constants that are found again."""

import dataclasses
import itertools
import json
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from benchmark.planning.step_model.machine_constants import TABLE, Constant, committed_constants
from benchmark.planning.step_model.simulated_step import simulate_step
from benchmark.planning.step_model.stacks import STACKS
from tests.backtest import __main__ as command
from tests.backtest import published_results
from tests.backtest.__main__ import Comparison, compare, summaries
from tests.backtest.fit_constants import DERIVED, FITTED, constants_by_name, fit, log_errors, with_values
from tests.backtest.left_out_models import LeftOutModel, errors_of_stacks, leave_models_out, nine_of_ten
from tests.backtest.published_results import backtest_constants, load_published_results, rates_of, step_flops

pytestmark = pytest.mark.slow


@cache
def compared() -> Sequence[Comparison]:
    return compare(load_published_results(), backtest_constants())


def test_errors_of_held_out_steps_are_those_that_were_found() -> None:
    """Within 0.1 % of docs/notes/planning_study.md."""
    by_name = {each.group: each for each in summaries(compared())}
    for group, results, median, high in (
        ("held out", 67, 0.025, 0.063),
        ("held out, stack nemo", 49, 0.020, 0.060),
        ("held out, stack torchtitan", 18, 0.042, 0.073),
        ("kept back, torchtitan on H100 500 W", 4, 0.213, 0.344),
        ("kept back, nemo on H100 SXM", 4, 0.078, 0.101),
        ("kept back, nemo on B200", 7, 0.021, 0.096),
    ):
        found = by_name[group]
        assert (found.results, found.median, found.nine_of_ten) == pytest.approx((results, median, high), abs=0.001)
    assert by_name["held out, precision bf16"].covered >= 0.9
    assert by_name["held out, precision fp8"].covered >= 0.9


def test_a_model_left_out_of_the_fit_is_predicted_worse() -> None:
    results = load_published_results()
    bf16, fp8 = itertools.islice(leave_models_out(results, backtest_constants()), 2)
    assert str(bf16) == "nemo, hidden 12,288, sequence 2,048, bf16"
    assert [len(model.errors) for model in (bf16, fp8)] == [5, 5]
    ids = [f"dgxc-25.02-gpt3-175b-bf16-{devices}" for devices in (128, 256, 512, 1024, 2048)]
    fitted_errors = [each.error for each in compared() if each.result.id in ids]
    assert np.abs(bf16.errors).mean() > np.abs(fitted_errors).mean()


def test_each_model_counts_once_in_the_error_of_a_stack() -> None:
    """Many good steps of a model do not outweigh the bad steps of another, and a stack with few steps has at least the
    error of all."""
    models = [
        LeftOutModel("nemo", 4096, 8192, "fp8", (0.01,) * 18),
        LeftOutModel("nemo", 8192, 8192, "fp8", (0.02, -0.08)),
        LeftOutModel("torchtitan", 4096, 8192, "fp8", (-0.05,)),
        LeftOutModel("nemo", 4096, 8192, "bf16", (0.03,)),
    ]
    assert [nine_of_ten(models[:1]), nine_of_ten(models[:2]), nine_of_ten(models[:3])] == [0.01, 0.08, 0.08]
    errors = errors_of_stacks(models, ["nemo", "torchtitan", "ours"])
    assert errors == {
        "stacks.nemo.error_bf16": 0.03,
        "stacks.torchtitan.error_bf16": 0.03,
        "stacks.ours.error_bf16": 0.03,
        "stacks.nemo.error_fp8": 0.08,
        "stacks.torchtitan.error_fp8": 0.08,
        "stacks.ours.error_fp8": 0.08,
    }


def test_every_row_is_possible() -> None:
    results = load_published_results()
    assert {each.work.stack for each in results} == set(STACKS) - {"ours"}
    for each in results:
        layout, model = each.work.layout, each.work.model
        peak = {"A100-80GB": 312e12, "B200": 2250e12}.get(each.work.accelerator, 989.4e12)
        peak *= 2 if each.work.precision == "fp8" else 1
        assert 0.05 < step_flops(each.work) / (each.published_s * layout.devices * peak) < 1, each.id
        assert model.num_attention_heads % layout.tensor_parallel == 0, each.id
        assert each.url.startswith("https://")
        assert not (each.fitted and (each.guessed or each.kept_back)), each.id


def test_a_wrong_table_is_refused(tmp_path: Path) -> None:
    text = published_results.TABLE.read_text()
    for old, new, error in (
        ("fitted = [", 'fitted = [\n  "nobody",', ValueError),
        ('note = "', 'remark = "', ValueError),
        ('kind = "step_s"', 'kind = "speed"', KeyError),
    ):
        path = tmp_path / "table.toml"
        path.write_text(text.replace(old, new))
        with pytest.raises(error):
            load_published_results(path)


def test_constants_that_made_the_steps_are_found_again() -> None:
    table = backtest_constants()
    constants = constants_by_name(table)
    names = ("accelerators.H100 SXM.matmul_bf16", "stacks.nemo.losses")
    changes = {name: Constant(value, 0.0, 1e4, "made up") for name, value in zip(names, (650.0, 0.1), strict=True)}
    nemo = [each for each in load_published_results() if (each.work.stack, each.work.precision) == ("nemo", "bf16")]
    steps = [
        dataclasses.replace(
            result, published_s=simulate_step(result.work, rates_of(result.work, table).changed(changes)).total
        )
        for result in nemo[:4]
    ]
    start = np.abs(log_errors(steps, table, {})).max()
    fitted = fit(steps, table, rounds=3)
    assert np.abs(log_errors(steps, table, fitted)).max() < start / 2
    for name in FITTED:
        assert constants[name].low <= fitted[name] <= constants[name].high
    assert all(fitted[name] == constants[name] for name in set(constants) - set(FITTED) - set(DERIVED))


def test_fitted_constants_are_written_and_marked() -> None:
    assert {name for name, constant in constants_by_name(committed_constants()).items() if constant.fitted} == set(
        FITTED
    )
    written = tomllib.loads(with_values(TABLE.read_text(), {"common.matmul_fill": 205.5, "stacks.nemo.losses": 0.01}))
    assert (written["common"]["matmul_fill"]["value"], written["stacks"]["nemo"]["losses"]["value"]) == (205.5, 0.01)
    assert written["stacks"]["ours"]["losses"]["value"] == committed_constants().stacks["ours"].losses


def test_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "compare", lambda *_: compared())
    monkeypatch.setattr("sys.argv", ["tests.backtest"])
    assert command.main() == 0
    assert len(capsys.readouterr().out.splitlines()) > len(compared())
    monkeypatch.setattr("sys.argv", ["tests.backtest", "--json"])
    assert command.main() == 0
    assert len(json.loads(capsys.readouterr().out)["comparisons"]) == len(compared())
