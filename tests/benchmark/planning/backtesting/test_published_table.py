"""Reading the table of published results: every row is possible, and what is wrong in a table is said."""

import re
from pathlib import Path

import pytest

from benchmark.planning.backtesting.published_results import PublishedResult
from benchmark.planning.backtesting.published_table import MOST_BYTES, load_published_results
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
