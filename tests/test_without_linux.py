"""Commands on a system other than Linux, such as macOS: every module is imported, and the work on data, checkpoints,
logs and plans is done without what Linux alone has. No other system was at hand: this takes those things from Python.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmark.judging.review.fixture import records, write_run
from tests.support import REPOSITORY

WITHOUT_LINUX = REPOSITORY / "tests" / "without_linux"
IMPORT_ALL = """
import importlib, pkgutil, sys
for package in ("foundation", "checksums", "data_prep", "checkpoint_convert", "model", "benchmark"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
"""


def python(*words: object, folder: Path = REPOSITORY) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{WITHOUT_LINUX}{os.pathsep}{REPOSITORY}"}
    process = subprocess.run(
        [sys.executable, *map(str, words)], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, f"{words}: {process.stderr}"
    return process.stdout


def test_linux_is_away() -> None:
    asked = "import os, time; print([hasattr(os, 'sched_getaffinity'), hasattr(time, 'CLOCK_BOOTTIME')])"
    assert python("-c", asked) == "[False, False]\n"
    with pytest.raises(AssertionError, match="No such file"):
        python("-c", "open('/proc/meminfo')")


@pytest.mark.slow
def test_all_modules_are_imported() -> None:
    python("-c", IMPORT_ALL)


@pytest.mark.slow
def test_data_checkpoints_logs_and_plans(tmp_path: Path) -> None:
    corpus, tokenizer = tmp_path / "corpus", tmp_path / "sentencepiece.model"
    python("-m", "data_prep", "synthetic-corpus", "--output", corpus, "--seed", 1)
    shard = corpus / "en" / "c4-train.00000-of-00008.json.gz"
    python("-m", "data_prep", "train-tokenizer", "--input", shard, "--output", tokenizer, "--vocab-size", 400)
    words = ["--input", shard, "--tokenizer", tokenizer, "--output-prefix", tmp_path / "data"]
    assert "tokens in" in python("-m", "data_prep", "preprocess", *words)
    paxml, megatron = tmp_path / "paxml", tmp_path / "megatron"
    sizes = "--seed 1 --layers 1 --hidden 16 --heads 2 --vocab 32 --positions 16".split()
    python("-m", "checkpoint_convert", "random-paxml", "--output", paxml, *sizes)
    python("-m", "checkpoint_convert", "paxml-to-megatron", "--input", paxml, "--output", megatron, "--dtype", "bf16")
    assert "files match, 0 changed" in python("-m", "checksums", "verify", megatron, "--manifest", f"{megatron}.md5")
    log = write_run(tmp_path / "run", records(1))
    page = tmp_path / "report.html"
    python("-m", "benchmark", "report", log, "--output", page)
    assert page.stat().st_size > 10_000
    assert python("-m", "benchmark", "plan", "rehearsal", "--json").startswith("{")
