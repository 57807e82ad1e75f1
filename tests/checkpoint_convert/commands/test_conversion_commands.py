"""What conversions and their plan print; options out of range."""

import dataclasses
import json
from pathlib import Path

import pytest

from checkpoint_convert.commands.conversion_commands import ConversionPlanCommand, RandomPaxmlCommand
from checkpoint_convert.conversion.random_paxml import ModelSizes
from tests.support import assert_refused, command


@pytest.mark.slow
def test_both_directions_say_what_they_wrote(tmp_path: Path) -> None:
    sizes = ["--layers", 1, "--hidden", 6, "--heads", 2, "--vocab", 210]
    for expected in ("1 layers", "already made"):
        done = command("checkpoint_convert", "random-paxml", "--output", tmp_path / "p", "--seed", 1, *sizes)
        assert done.stdout == f"{tmp_path}/p: {expected}\n"
    there = ["paxml-to-megatron", "--input", tmp_path / "p", "--output", tmp_path / "m", "--dtype", "fp32"]
    done = command("checkpoint_convert", *there)
    assert done.stdout.startswith(f"{tmp_path}/m: ")
    assert f"; MD5 sums in {tmp_path}/m.md5" in done.stdout
    back = ["megatron-to-paxml", "--input", tmp_path / "m", "--output", tmp_path / "back"]
    result = json.loads(command("checkpoint_convert", *back, "--json").stdout)
    assert result.keys() == {"already_made", "bytes", "files", "resumed_files", "wall_s"}
    assert result["resumed_files"] == 0
    assert result["files"] == sum(1 for path in (tmp_path / "back").rglob("*") if path.is_file())
    for words, output in ((there, "m"), (back, "back")):
        done = command("checkpoint_convert", *words)
        assert done.stdout == f"{tmp_path}/{output}: already made from this checkpoint\n"


def test_plan_of_the_benchmarks_checkpoint_is_a_table() -> None:
    done = command("checkpoint_convert", "plan", "--dtype", "bf16", "--workers", 1, "--memory-limit", "8GiB")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1 + 48 + 1 + 5
    assert "123,522 files, 2.4 TB to write" in done.stdout


def test_plan_as_json_has_the_totals_and_every_array(capsys: pytest.CaptureFixture[str]) -> None:
    ConversionPlanCommand(workers=1, disk_mb_per_s=500.0, json=True).run()
    told = json.loads(capsys.readouterr().out)
    assert (told["files"], len(told["arrays"]), told["disk_mb_per_s"]) == (123522, 48, 500.0)
    assert told["minutes"] == pytest.approx((told["bytes_read"] + told["bytes_written"]) / 500e6 / 60)


def test_random_paxml_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ModelSizes(layers=1, hidden=6, heads=2, vocab=8, positions=4)
    for already_made in (False, True):
        RandomPaxmlCommand(tmp_path / "p", seed=1, sizes=sizes, json=True).run()
        assert json.loads(capsys.readouterr().out) == {"already_made": already_made, **dataclasses.asdict(sizes)}


def test_options_out_of_range_are_refused() -> None:
    for option, value in (
        ("--disk-mb-per-s", "0"),
        ("--disk-mb-per-s", "nan"),
        ("--workers", "0"),
        ("--workers", "1000000000"),
        ("--memory-limit", "1.2.3GiB"),
        ("--memory-limit", "0"),
    ):
        assert_refused(command("checkpoint_convert", "plan", option, value), option, "expected")
