"""BENCHMARK [--system NAME] [overrides]: names first, then single fields."""

import dataclasses
from pathlib import Path

import pytest

from benchmark.commands.command_table import parse
from benchmark.commands.run_commands import EvaluateCommand
from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import RunConfig
from benchmark.config.run_options import RunReader, parse_run
from benchmark.config.systems import SYSTEMS
from foundation.errors import InputError

SECTIONS = (
    "run",
    "benchmark",
    "model",
    "optimizer",
    "system",
    "collectives",
    "data",
    "checkpoints",
    "guards",
    "logging",
)
READER = RunReader("prog", SECTIONS, SECTIONS, needs_layout=True)


def parsed(*arguments: str) -> RunConfig:
    return parse_run("prog", arguments, EvaluateCommand, READER).config


def test_names_choose_what_the_overrides_change() -> None:
    assert parsed("gpt3_175b") == RunConfig(benchmark=GPT3_175B, system=SYSTEMS["dgxh100_n64"])
    assert parsed("rehearsal").system == SYSTEMS["cpu_p2"]
    config = parsed("gpt3_175b", "--global-batch-size", "2048", "--system", "h200_n8", "--nodes", "16", "--lr", "3e-5")
    assert config.system == dataclasses.replace(SYSTEMS["h200_n8"], nodes=16)
    changed = dataclasses.replace(GPT3_175B.optimizer, lr=3e-5)
    assert config.benchmark == dataclasses.replace(GPT3_175B, global_batch_size=2048, optimizer=changed)


def test_options_of_the_run_itself() -> None:
    config = parsed("rehearsal", "--system=cpu_p1", "--train-data-path", "0.5", "A", "0.5", "B", "--run-dir", "runs/7")
    assert config.system.name == "cpu_p1"
    assert config.data.train_data_path == ("0.5", "A", "0.5", "B")
    assert (config.run_dir, config.data.seed, config.benchmark.target_log_perplexity) == (Path("runs/7"), None, 2.44)
    assert parsed("rehearsal", "--target-log-perplexity", "None").benchmark.target_log_perplexity is None
    assert parse_run("prog", ["rehearsal", "--json"], EvaluateCommand, READER).json


@pytest.mark.parametrize(
    ("words", "rates"),
    [
        ((), (4e-4, 4e-5, 256)),
        (("--global-batch-size", "32"), (8e-4, 8e-5, 4_096)),
        (("--global-batch-size=96",), (1e-3, 1e-4, 16_348)),
        (("--global_batch_size", "128", "--lr", "1e-3"), (1e-3, 1e-4, 32_768)),
        (("--lr", "6e-4"), (6e-4, 6e-5, 256)),
        (("--global-batch-size", "48", "--lr", "6e-4", "--lr-warmup-samples", "480"), (6e-4, 6e-5, 480)),
        (("--min-lr", "1e-6", "--submission-division", "open"), (4e-4, 1e-6, 256)),
    ],
)
def test_llamas_rates_follow_from_batch_size_and_peak(words: tuple[str, ...], rates: tuple[float, ...]) -> None:
    layout = ("--micro-batch-size", "1", "--tensor-parallel", "8")
    command = parse(["train", "llama31_8b", *words, *layout])
    optimizer = command.config.benchmark.optimizer  # type: ignore[attr-defined]
    assert (optimizer.lr, optimizer.min_lr, optimizer.lr_warmup_samples) == rates
    assert f"learning rate {rates[0]:g} to {rates[1]:g}" in "\n".join(command.config.banner(1))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("schedule", "--wandb online"),
        ("schedule", "--after-checkpoint x"),
        ("schedule", "--save-minutes 3"),
        ("schedule", "--no-watchdog"),
        ("schedule", "--num_layers=3"),
        ("schedule", "--system cpu_p1"),
        ("evaluate", "--save-interval 3"),
        ("evaluate", "--profile 1:2"),
    ],
)
def test_options_without_effect_are_refused(command: str, words: str) -> None:
    flag = words.split()[0].partition("=")[0].replace("_", "-")
    with pytest.raises(InputError, match=f"{flag} has no effect on {command}; leave it out"):
        parse([command, "rehearsal", *words.split()])
