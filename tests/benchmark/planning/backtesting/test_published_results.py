"""The table of published results: every row is possible, and what is wrong in a table is said."""

import re
from pathlib import Path

import pytest

from benchmark.config.accelerators import ACCELERATORS
from benchmark.config.benchmarks import GPT3_175B
from benchmark.planning.backtesting.published_results import MOST_BYTES, PublishedResult, load_published_results
from model.flops import train_flops_per_token
from stage.errors import InputError

RESULTS = load_published_results()
BY_ID = {result.id: result for result in RESULTS}

SMALL = """
[sources.paper]
title = "A paper"
url = "https://example.org/paper"
read = "table 1"

[models]
tiny = { layers = 2, hidden = 64, heads = 4, sequence = 128, vocabulary = 512 }

[[groups]]
source = "paper"
stack = "megatron"
accelerator = "H100 SXM"
devices_per_node = 8
network = "InfiniBand NDR"
network_gbps = 400.0
model = "tiny"
precision = "bf16"
micro_batch_size = 1
sharding = "zero1"
recompute = "none"
sequence_parallel = false
kind = "mfu"
columns = ["id", "devices", "tensor_parallel", "pipeline_parallel", "data_parallel", "global_batch_size", "value"]
rows = [["one", 16, 2, 4, 2, 32, 0.5]]
"""


def load(tmp_path: Path, text: str) -> list[PublishedResult]:
    path = tmp_path / "results.toml"
    path.write_text(text)
    return load_published_results(path)


def test_there_are_enough_results_and_of_each_kind() -> None:
    assert len(RESULTS) >= 120
    assert {result.accelerator for result in RESULTS} >= {"A100-80GB", "H100 SXM", "B200"}
    assert {result.precision for result in RESULTS} >= {"bf16", "fp16", "fp8"}
    assert {result.stack for result in RESULTS} >= {"megatron", "nemo", "mlperf_nvidia", "llm_foundry", "torchtitan"}


def test_ids_are_words_and_occur_once() -> None:
    assert len(BY_ID) == len(RESULTS)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name) for name in BY_ID)


def test_every_result_is_possible() -> None:
    for result in RESULTS:
        parallel = result.tensor_parallel * result.context_parallel * result.pipeline_parallel * result.data_parallel
        assert parallel == result.devices, result.id
        per_replica = result.micro_batches * result.micro_batch_size
        assert per_replica * result.data_parallel == result.global_batch_size, result.id
        assert 0.05 < result.share_of_peak < 1, result.id
        assert result.model.heads % result.tensor_parallel == 0, result.id
        assert result.model.hidden % result.model.heads == 0, result.id
        assert result.source.url.startswith("https://"), result.id
        assert result.network_gbps > 0 or result.devices <= result.devices_per_node, result.id
        assert set(result.inferred) <= set(PublishedResult.__dataclass_fields__), result.id
        assert not result.inferred or result.note, result.id


def test_whole_runs_are_longer_than_their_steps_and_evaluations() -> None:
    runs = 0
    for result in RESULTS:
        if result.run_min is not None:
            assert result.steps is not None and result.evaluations is not None and result.evaluation_s is not None
            parts = result.steps * result.step_s + result.evaluations * result.evaluation_s
            assert 0.9 * result.run_min * 60 < parts < 1.01 * result.run_min * 60, result.id
            runs += 1
    assert runs >= 20


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


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[[groups]]", "[[groups", "not TOML"),
        ("[sources.paper]", "[papers.paper]", "[sources.NAME] tables are missing"),
        ("[[groups]]", "[groups]", "[[groups]] are missing"),
        ("2, 32, 0.5", "2, 32", "is no row of the columns id, devices"),
        ('source = "paper"', 'source = "book"', "source 'book'; known: paper"),
        ('model = "tiny"', 'model = "huge"', "model 'huge'; known: tiny"),
        ('stack = "megatron"\n', "", "unknown: nothing; missing: stack"),
        ('stack = "megatron"', 'stack = "megatron"\ncolour = "red"', "unknown: colour; missing: nothing"),
        ("micro_batch_size = 1", "micro_batch_size = true", "micro_batch_size is True; expected int"),
        ("micro_batch_size = 1", 'micro_batch_size = "1"', "micro_batch_size is '1'; expected int"),
        ('accelerator = "H100 SXM"', 'accelerator = "H300"', "accelerator 'H300'; possible: GB200"),
        ('precision = "bf16"', 'precision = "fp4"', "precision 'fp4'; possible: bf16"),
        ('kind = "mfu"', 'kind = "speed"', "kind 'speed'; possible: step_s"),
        ('kind = "mfu"', 'kind = "mfu"\nswitches = "all"', "switches is 'all'; expected tuple"),
        ('"one", 16', '"one", 24', "tensor x context x pipeline x data = 16, and there are 24 devices"),
        ("2, 32, 0.5", "2, 31, 0.5", "31 sequences do not divide into micro-batches of 1 on 2 replicas"),
        ("2, 32, 0.5", "0, 32, 0.5", "sizes and figures are above 0"),
        ("2, 32, 0.5", "2, 32, 1.5", "150.0% of the peak in bf16"),
        ("0.5]]", '0.5], ["one", 16, 2, 4, 2, 32, 0.4]]', "result 'one' is there twice"),
    ],
)
def test_a_wrong_table_is_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as error:
        load(tmp_path, SMALL.replace(old, new, 1))
    assert "results.toml" in str(error.value) and "\n" not in str(error.value)


def test_a_table_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a table of results has at most"):
        load(tmp_path, SMALL + "#" * MOST_BYTES)
