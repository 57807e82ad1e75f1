"""Commands on a system other than Linux, such as macOS: every module is imported, and the work on data, checkpoints,
logs and plans is done without what Linux alone has. No other system was at hand: this takes those things from Python.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmark.judging.review.fixture import records, write_run
from tests.support import REPOSITORY

WITHOUT_LINUX = REPOSITORY / "tests" / "without_linux"
IMPORT_ALL_AND_RUN = """
import importlib, json, pkgutil, runpy, sys
for package in ("foundation", "checksums", "data_prep", "checkpoint_convert", "model", "benchmark"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
for words in json.loads(sys.argv[1]):
    sys.argv = words
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    except SystemExit as leaving:
        if leaving.code:
            raise
    print(end="\\0", flush=True)
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
def test_modules_are_imported_and_data_checkpoints_logs_and_plans_are_worked_on(tmp_path: Path) -> None:
    """All commands run in one interpreter: its start takes longer than most of them."""
    corpus, tokenizer = tmp_path / "corpus", tmp_path / "sentencepiece.model"
    shard, log = corpus / "en" / "c4-train.00000-of-00008.json.gz", write_run(tmp_path / "run", records(1))
    paxml, megatron, page = tmp_path / "paxml", tmp_path / "megatron", tmp_path / "report.html"
    sizes = "--layers 1 --hidden 16 --heads 2 --vocab 32 --positions 16"
    commands = [
        f"data_prep synthetic-corpus --output {corpus} --seed 1",
        f"data_prep train-tokenizer --input {shard} --output {tokenizer} --vocab-size 400",
        f"data_prep preprocess --input {shard} --tokenizer {tokenizer} --output-prefix {tmp_path / 'data'}",
        f"checkpoint_convert random-paxml --output {paxml} --seed 1 {sizes}",
        f"checkpoint_convert paxml-to-megatron --input {paxml} --output {megatron} --dtype bf16",
        f"checksums verify {megatron} --manifest {megatron}.md5",
        f"benchmark report {log} --output {page}",
        "benchmark plan rehearsal --json",
    ]
    outputs = python("-c", IMPORT_ALL_AND_RUN, json.dumps([line.split() for line in commands])).split("\0")
    assert len(outputs) == len(commands) + 1
    assert "tokens in" in outputs[2]
    assert "files match, 0 changed" in outputs[5]
    assert page.stat().st_size > 10_000
    assert outputs[7].startswith("{")
