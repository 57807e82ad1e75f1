"""A stranger's configuration: taken over as far as it is needed, bounded, never executed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmark.config.systems import SYSTEMS
from benchmark.replay.recorded_config import Replacements, recorded_config
from stage.errors import InputError
from tests.benchmark.tiny import SHORT


def edited(run_dir: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    path = run_dir / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))
    return run_dir


def test_what_is_trained_is_taken_over(run_dir: Path, tmp_path: Path) -> None:
    config = recorded_config(run_dir, Replacements())
    assert (config.benchmark, config.data.seed, config.precision) == (SHORT, 17, "fp32")
    assert config.system.micro_batch_size == 2
    given = Replacements(("a",), ("b",), tmp_path, "cpu_p2", {"micro_batch_size": 3})
    config = recorded_config(run_dir, given)
    assert (config.data.train_data_path, config.data.valid_data_path, config.data.checkpoint) == (
        ("a",),
        ("b",),
        tmp_path,
    )
    assert (config.system.devices_per_node, config.system.micro_batch_size) == (2, 3)


def test_what_runs_writes_or_connects_is_not_read(run_dir: Path, tmp_path: Path) -> None:
    def dangerous(config: dict[str, Any]) -> None:
        config.update(after_checkpoint=f"touch {tmp_path / 'ran'}", wandb="online", tensorboard=True)
        config.update(prometheus_textfile=str(tmp_path / "x.prom"), debug={"profile": [0, 9]}, run_dir="/etc")

    config = recorded_config(edited(run_dir, dangerous), Replacements())
    assert (
        config.checkpoints.after_checkpoint,
        config.logging.wandb,
        config.logging.tensorboard,
        config.logging.prometheus_textfile,
    ) == (
        "",
        "off",
        False,
        None,
    )
    assert config.run_dir == run_dir
    assert not config.checkpoints.saves


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            lambda config: config["benchmark"].update(train_samples=10**15),
            "train_samples 1000000000000000: expected",
        ),
        (
            lambda config: config["benchmark"]["model"].update(hidden_size=40 * 10**9),
            "hidden_size 40000000000: ",
        ),
        (lambda config: config["benchmark"]["model"].update(num_layers=-1), "num_layers -1: expected at least 1"),
        (
            lambda config: config["benchmark"]["model"].update(num_attention_heads=7),
            "is not a multiple of num_",
        ),
        (lambda config: config["benchmark"].update(more=1), "benchmark: unknown field 'more'"),
        (lambda config: config["benchmark"].pop("optimizer"), "benchmark: optimizer is missing"),
        (lambda config: config.pop("system"), "system: got None; expected an object"),
        (lambda config: config["system"].update(micro_batch_size=5), "global_batch_size 12 is not a multiple"),
        (lambda config: config.update(precision="fp8"), "precision: got 'fp8'; expected one of bf16, fp32"),
        (lambda config: config.update(seed="17"), "seed: got '17'; expected a whole number"),
        (lambda config: config.update(train_data_path="x"), "train_data_path: got 'x'; expected a list"),
    ],
)
def test_what_is_no_run_is_one_line(change: Callable[[dict[str, Any]], object], complaint: str, run_dir: Path) -> None:
    with pytest.raises(InputError, match=complaint):
        recorded_config(edited(run_dir, change), Replacements())


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"{", "truncated; expected the configuration that a run writes"),
        (b"[]", "Expected `object`, got `array`"),
        (b"[" * 10**5, "Expected `object`"),
        (b" " * (2 << 20), "2,097,152 bytes"),
    ],
)
def test_files_that_are_no_configuration(content: bytes, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(InputError, match=complaint):
        recorded_config(tmp_path, Replacements())


def test_missing_files_and_unknown_systems(run_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file; give the folder of a run that was trained with --evidence"):
        recorded_config(tmp_path, Replacements())
    with pytest.raises(InputError, match=f"system 'x': there are {next(iter(SYSTEMS))}"):
        recorded_config(run_dir, Replacements(system="x"))
