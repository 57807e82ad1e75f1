"""Published results: their units, and the FLOPs that they are turned into seconds by."""

from pathlib import Path

import pytest

from benchmark.config.accelerators import ACCELERATORS
from benchmark.config.benchmarks import GPT3_175B
from model.flops import train_flops_per_token
from tests.benchmark.planning.backtesting.test_published_table import BY_ID, SMALL, load


def test_flops_are_those_of_the_benchmarks_formula() -> None:
    # the logits of the table's 51,200 rows against the model's own 50,257
    config = GPT3_175B.model
    padding = 6 * config.hidden_size * (51200 - config.vocab_size)
    model = BY_ID["mlperf-v4.1-eos-512"].model
    assert model.train_flops_per_token == pytest.approx(train_flops_per_token(config) + padding, rel=1e-12)
    assert model.parameters == pytest.approx(175.2e9, rel=0.01)


def test_figures_a_source_prints_twice_agree() -> None:
    # the MFU that NVIDIA prints beside its step times, and MLPerf's as docs/facts/peers.md 1.1 has it
    for name, printed in (
        ("dgxc-25.02-gpt3-175b-bf16-128", 0.5354),
        ("dgxc-25.04-llama3-8b-bf16-8", 0.6247),
        ("dgxc-25.04-llama3-70b-bf16-2048", 0.5432),
        ("dgxc-25.05-nemotron4-340b-bf16-256", 0.473),
        ("mlperf-v4.1-eos-256", 957 / 989.4),
        ("megatron-h100-177b", 0.44),
    ):
        assert BY_ID[name].mfu == pytest.approx(printed, rel=0.01), name
    # FLOP/s with recomputation are those of 96 B S L H^2 (1 + S/6H + V/16LH)
    row = BY_ID["megatron-a100-1t"]
    L, H, S, V = 128, 25600, 2048, 51200
    flops = 96 * 3072 * S * L * H * H * (1 + S / (6 * H) + V / (16 * L * H))
    assert row.step_s == pytest.approx(flops / (163e12 * 3072), rel=1e-9)


def test_units_become_seconds(tmp_path: Path) -> None:
    result = load(tmp_path, SMALL)[0]
    tokens, flops = 32 * 128, 72 * 2 * 64**2 * (1 + 128 / (6 * 64) + 512 / (12 * 2 * 64))
    peak = ACCELERATORS["H100 SXM"].peak_tflops * 1e12
    seconds = tokens * flops / (0.5 * peak * 16)
    assert result.step_s == pytest.approx(seconds, rel=1e-12)
    assert result.mfu == pytest.approx(0.5) and not result.inferred and result.micro_batches == 16
    rates = {
        "step_s": seconds,
        "tokens_per_s_per_device": tokens / seconds / 16,
        "tflops_per_device": 0.5 * peak / 1e12,
    }
    for kind, value in rates.items():
        text = SMALL.replace('kind = "mfu"', f'kind = "{kind}"').replace("0.5]]", f"{value!r}]]")
        assert load(tmp_path, text)[0].step_s == pytest.approx(seconds, rel=1e-12), kind


def test_shapes_of_newer_models(tmp_path: Path) -> None:
    sizes = "kv_heads = 2, ffn_hidden = 96, gated = true, sequence"
    model = load(tmp_path, SMALL.replace("sequence", sizes, 1))[0].model
    attention = 12 * 64**2 * 1.5 + 12 * 64 * 128
    assert model.train_flops_per_token == 2 * (attention + 18 * 64 * 96) + 6 * 64 * 512
    assert model.parameters == 2 * (2 * 64**2 * 1.5 + 3 * 64 * 96) + 2 * 512 * 64
