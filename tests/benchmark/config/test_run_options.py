"""BENCHMARK [--system NAME] [overrides]: names first, then single fields."""

import dataclasses
import re
from pathlib import Path

import pytest

from benchmark.commands.command_table import parse
from benchmark.commands.run_commands import EvaluateCommand
from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import RunConfig
from benchmark.config.run_options import parse_run
from benchmark.config.systems import SYSTEMS
from foundation.errors import InputError


def parsed(*arguments: str) -> RunConfig:
    return parse_run("prog", arguments, EvaluateCommand, on_devices=True).config


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
    assert parse_run("prog", ["rehearsal", "--json"], EvaluateCommand, on_devices=True).json


def test_system_without_a_name_is_refused() -> None:
    with pytest.raises(InputError, match="--system: expected a name, one of dgxh100_n64"):
        parsed("gpt3_175b", "--system")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["gpt3_175B"], "unknown benchmark 'gpt3_175B'; did you mean gpt3_175b?"),
        ([], "which benchmark? One of gpt3_175b, rehearsal"),
        (["gpt3_175b", "--global-batch-size", "many"], "--global-batch-size"),
        (["gpt3_175b", "--gbs", "2048"], "--gbs"),
        (["gpt3_175b", "--system", "laptop"], "unknown system 'laptop'"),
        (["gpt3_175b", "--system=cpu_p"], "unknown system 'cpu_p'; did you mean cpu_p"),
        (["gpt3_175b", "--num-attention-heads", "95"], "hidden_size 12288 is not a multiple"),
        (["llama31_8B"], "unknown benchmark 'llama31_8B'; did you mean llama31_8b?"),
        (["llama31_8b", "--max-steps", "0"], "max_steps 0: expected at least 1; change --max-steps"),
        (["llama31_8b", "--evaluation-sequences", "-1"], "evaluation_sequences -1: expected at least 1"),
        (["llama31_8b", "--num-key-value-heads", "5"], "num_attention_heads 32 is not a multiple of"),
        (["llama31_8b", "--num-key-value-heads", "1"], "tensor_parallel 2 does not divide num_key_value_heads 1; poss"),
        (["llama31_8b", "--checkpoint=C"], "--checkpoint: llama31_8b has no initial checkpoint"),
        (["rehearsal_llama", "--start_iterations", "1"], "leave --start-iterations (EXTERNAL_TRAINING_ITERATIONS) out"),
    ],
)
def test_bad_options_are_refused_in_a_line(arguments: list[str], complaint: str) -> None:
    with pytest.raises(InputError, match=re.escape(complaint)) as refused:
        parse(["train", *arguments])
    assert "\n" not in str(refused.value)
