"""The plan of the real job: arithmetic, limits, overrides."""

import json
from typing import Any

import pytest

from data_prep.preparation.artifacts import LLAMA31_DATASET_BYTES
from data_prep.preparation.preparation_plan import DATA, RATES
from tests.support import assert_refused, command

GPT3 = DATA["gpt3_175b"]
LLAMA31_TRAINING = [LLAMA31_DATASET_BYTES[f"c4-train.en_6_text_document.{ending}"] for ending in ("bin", "idx")]
HEADER_BYTES = 42
"""What an .idx holds besides 20 bytes per document."""


def stages_of(*arguments: object) -> dict[str, dict[str, Any]]:
    done = command("data_prep", "plan", "--json", "--nodes", 1, *arguments)
    assert done.returncode == 0, done.stderr
    (plan,) = json.loads(done.stdout)["plans"]
    assert plan["seconds"] == pytest.approx(sum(stage["seconds"] for stage in plan["stages"]))
    return {stage["name"]: stage for stage in plan["stages"]}


def test_every_stage_and_what_limits_it() -> None:
    rates = ["--mb-per-s-per-core", 10, "--disk-mb-per-s", 1e6, "--network-mb-per-s", 100]
    stages = stages_of("--cores", 64, *rates)
    assert list(stages) == ["fetch", "tokenise", "join", "index", "verify"]
    assert stages["fetch"]["seconds"] == GPT3.fetched_bytes / 100e6
    assert stages["fetch"]["limit"] == "network"
    assert stages["tokenise"]["seconds"] == pytest.approx(GPT3.text_bytes / 64 / 10e6)  # 256 files: four rounds of 64
    assert stages["tokenise"]["limit"] == "cores"
    two_streams = 2 * RATES["join"].mb_per_s * 1e6  # 64 cores or not
    assert stages["join"]["seconds"] == pytest.approx(GPT3.dataset_bytes / two_streams)


def test_workers_count() -> None:
    few = stages_of("--cores", 64, "--workers", 8, "--mb-per-s-per-core", 10, "--disk-mb-per-s", 1e6)
    assert few["tokenise"]["seconds"] == pytest.approx(GPT3.text_bytes / 8 / 10e6)
    assert few["tokenise"]["limit"] == "--workers 8"
    many = stages_of("--cores", 64, "--workers", 224, "--mb-per-s-per-core", 10, "--disk-mb-per-s", 1e6)
    assert many["tokenise"]["seconds"] == pytest.approx(GPT3.text_bytes / 64 / 10e6)  # no more than there are cores


def test_the_table_shows_both_sizes_and_every_rate() -> None:
    done = command("data_prep", "plan")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:9] == "step 1 node 8 nodes work on nodes of".split()
    assert "limited by cores on 1 node; disk on 8 nodes" in " ".join(done.stdout.split())
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert "disk space: 256 GB" in done.stdout
    assert done.stdout.count("rate: ") == 5
    assert "initial checkpoint: 2,100 GB more (python -m checkpoint_convert plan)" in done.stdout
    given = command("data_prep", "plan", "--disk-mb-per-s", 123)
    assert "rate: disk 123 MB/s (given)" in given.stdout


def test_published_token_files_are_fetched_and_neither_tokenised_nor_joined() -> None:
    """Llama 3.1 8B begins without a checkpoint; the number of tokens follows from the sizes of the files."""
    done = command("data_prep", "plan", "--benchmark", "llama31_8b")
    assert done.returncode == 0, done.stderr
    assert "disk space: 87 GB\ninitial checkpoint: none\n" in done.stdout
    assert done.stdout.count("rate: ") == 3
    rates = ["--network-mb-per-s", 100, "--disk-mb-per-s", 1e6]
    stages = stages_of("--benchmark", "llama31_8b", *rates)
    assert list(stages) == ["fetch", "index", "verify"]
    assert stages["fetch"]["seconds"] == 85_057_339_048 / 100e6
    assert DATA["llama31_8b"].dataset_bytes == sum(LLAMA31_TRAINING) - HEADER_BYTES


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--workers", 0], "--workers 0: expected 1 to "),
        (["--cores", 0], "--nodes 1 8 --cores 0: expected at least 1 of each"),
        (["--nodes", 0], "--nodes 0 --cores 64: expected at least 1 of each"),
        (["--benchmark", "llama31_405b"], "llama31_405b"),
        (["--nodes"], "--nodes: expected a whole number, got nothing"),
        (["--disk-mb-per-s", 0], "--disk-mb-per-s 0: expected more than 0"),
        (["--network-mb-per-s", "nan"], "--network-mb-per-s nan: expected more than 0"),
    ],
)
def test_impossible_machines_are_refused(arguments: list[object], complaint: str) -> None:
    assert_refused(command("data_prep", "plan", *arguments), complaint)
