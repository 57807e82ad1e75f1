"""What conversions and their plan print; options out of range."""

import dataclasses
import json
from pathlib import Path

import pytest

from checkpoint_convert.commands.conversion_commands import ConversionPlanCommand, RandomPaxmlCommand
from checkpoint_convert.conversion import machine_memory
from checkpoint_convert.conversion.random_paxml import ModelSizes
from tests.checkpoint_convert.in_process import run


def test_both_directions_say_what_they_wrote(tmp_path: Path) -> None:
    sizes = ["--layers", 1, "--hidden", 6, "--heads", 2, "--vocab", 210]
    for expected in ("1 layers", "already made"):
        done = run("random-paxml", "--output", tmp_path / "p", "--seed", 1, *sizes)
        assert done.stdout == f"{tmp_path}/p: {expected}\n"
    there = ["paxml-to-megatron", "--input", tmp_path / "p", "--output", tmp_path / "m", "--dtype", "fp32"]
    done = run(*there)
    assert done.stdout.startswith(f"{tmp_path}/m: ")
    assert f"; MD5 sums in {tmp_path}/m.md5" in done.stdout
    back = ["megatron-to-paxml", "--input", tmp_path / "m", "--output", tmp_path / "back"]
    result = json.loads(run(*back, "--json").stdout)
    assert result.keys() == {"already_made", "bytes", "files", "resumed_files", "wall_s", "facts"}
    assert result["resumed_files"] == 0
    assert result["files"] == sum(1 for path in (tmp_path / "back").rglob("*") if path.is_file())
    for words, output in ((there, "m"), (back, "back")):
        done = run(*words)
        assert done.stdout == f"{tmp_path}/{output}: already made from this checkpoint\n"


def test_plan_of_the_benchmarks_checkpoint_is_a_table() -> None:
    done = run("plan", "--dtype", "bf16", "--workers", 1, "--memory-limit", "8GiB")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1 + 48 + 1 + 5
    assert "123,522 files, 2.4 TB to write" in done.stdout


def test_plan_as_json_has_the_totals_and_every_array(capsys: pytest.CaptureFixture[str]) -> None:
    ConversionPlanCommand(workers=1, disk_mb_per_s=500.0, json=True).run()
    told = json.loads(capsys.readouterr().out)
    assert (told["files"], len(told["arrays"]), told["disk_mb_per_s"]) == (123522, 48, 500.0)
    assert told["minutes"] == pytest.approx((told["bytes_read"] + told["bytes_written"]) / 250e6 / 60)
    assert told["limited_by"] == "workers"


def test_times_are_those_of_the_manual(capsys: pytest.CaptureFixture[str]) -> None:
    ConversionPlanCommand(memory_limit="64GiB", workers=16, json=True).run()
    told = json.loads(capsys.readouterr().out)
    assert [(one["source"], one["nodes"], round(one["minutes"], 1), one["limited_by"]) for one in told["times"]] == [
        ("disk", 1, 75.7, "disk"),
        ("bucket", 1, 40.7, "disk"),
        ("disk", 8, 9.5, "disk"),
        ("bucket", 8, 5.1, "disk"),
    ]


def test_a_plan_warns_where_this_machine_lacks_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_memory, "memory_of_this_process", lambda: 64 << 30)
    done = run("plan", "--memory-limit", "64GiB", "--workers", 224)
    assert done.stderr.startswith("warning: the blocks take 6")
    assert run("plan", "--memory-limit", "8GiB", "--workers", 224).stderr == ""


def test_random_paxml_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ModelSizes(layers=1, hidden=6, heads=2, vocab=8, positions=4)
    for already_made in (False, True):
        RandomPaxmlCommand(tmp_path / "p", seed=1, sizes=sizes, json=True).run()
        assert json.loads(capsys.readouterr().out) == {"already_made": already_made, **dataclasses.asdict(sizes)}


def test_options_out_of_range_are_refused() -> None:
    for option, value in (
        ("--disk-mb-per-s", "0"),
        ("--disk-mb-per-s", "nan"),
        ("--network-mb-per-s", "nan"),
        ("--nodes", "0"),
        ("--workers", "0"),
        ("--workers", "1000000000"),
        ("--memory-limit", "1.2.3GiB"),
        ("--memory-limit", "0"),
    ):
        run("plan", option, value).refused(option, "expected")
