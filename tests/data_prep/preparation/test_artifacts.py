"""The table of what the benchmark needs."""

from pathlib import Path

import pytest

from data_prep.preparation.artifacts import ARTIFACTS
from tests.support import assert_refused, command


def test_the_table_names_what_the_benchmark_needs() -> None:
    train = ARTIFACTS["train"].files
    assert len(train) == 256
    assert train[0] == "en/c4-train.00768-of-01024.json.gz"
    assert train[-1] == "en/c4-train.01023-of-01024.json.gz"
    assert ARTIFACTS["validation"].files[-1] == "en/c4-validation.00007-of-00008.json.gz"
    assert ARTIFACTS["dataset"].files[0] == "preprocessed_c4_spm/c4_en_6_c4_spm_text_document.bin"
    assert len(ARTIFACTS["dataset"].files) == 6


def test_the_commands_are_those_that_are_published() -> None:
    """mlcommons/training at aa344c7f, retired_benchmarks/gpt3/megatron-lm/README.md, lines 173 to 181."""
    published = "bash <(curl -s https://raw.githubusercontent.com/mlcommons/r2-downloader/refs/heads/main/"
    published += "mlc-r2-downloader.sh) https://training.mlcommons-storage.org/metadata/gpt-3-megatron-"
    commands = [download.command for artifact in ARTIFACTS.values() for download in artifact.downloads]
    assert {command.removeprefix(published) for command in commands} == {
        "preprocessed-dataset.uri",
        "fp32-checkpoint.uri",
        "bf16-checkpoint.uri",
    }


@pytest.mark.parametrize("shards", ["1024", "5-4", "-3", "3-", "a-b", "1-2-3", ""])
def test_shards_that_do_not_exist_are_refused(shards: str, tmp_path: Path) -> None:
    done = command("data_prep", "fetch", "--output", tmp_path / "c4", f"--shards={shards}", "--list")
    assert_refused(done, f"--shards {shards}: expected FIRST-LAST or one number, from 0 to 1023")
