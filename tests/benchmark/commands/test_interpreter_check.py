"""Whether a Python can run the benchmark, told before all processes find out."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmark.commands import interpreter_check
from benchmark.commands.interpreter_check import complaint, unfit_python
from foundation import dependencies
from tests.support import REPOSITORY


def test_a_python_that_can_tells_the_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert complaint("python", "train", "rehearsal") == ""
    assert complaint("python", "evaluate", "rehearsal", "--system", "cpu_p1") == ""
    assert capsys.readouterr().out == "nodes 1\ndevices 2\ndevice cpu\nnodes 1\ndevices 1\ndevice cpu\n"


def test_an_old_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter_check, "OLDEST", (9, 9))
    assert unfit_python().endswith("Python 9.9 or newer is needed")


def test_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependencies, "missing", lambda _: ["torch>=2.11, found 1.0", "zarr, not installed"])
    assert unfit_python().endswith("torch>=2.11, found 1.0; zarr, not installed")


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_no_gpu_where_the_system_has_some() -> None:
    assert "sees no CUDA device, and system dgxh100_n64 needs them" in complaint("python", "train", "gpt3_175b")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train llama3_8b", "unknown benchmark 'llama3_8b'; did you mean llama31_8b?"),
        ("train gpt3_175b --system none", "unknown system 'none'"),
        ("train rehearsal_llama --checkpoint=X", "--checkpoint: rehearsal_llama has no initial checkpoint"),
        ("train rehearsal_llama --start-iterations 4", "leave --start-iterations (EXTERNAL_TRAINING_ITERATIONS) out"),
        ("train rehearsal_llama --start-global-batch-size 4", "leave --start-global-batch-size (EXTERNAL_GBS) out"),
        ("evaluate rehearsal_llama --checkpoint X", ""),
    ],
)
def test_names_and_starts_that_all_processes_would_refuse(words: str, said: str) -> None:
    found = complaint("python", *words.split())
    assert said in found and "\n" not in found and bool(said) == bool(found)


def test_as_a_file_from_anywhere(tmp_path: Path) -> None:
    """By a Python that has no packages: the file finds the project's own modules, which tell what is missing."""
    file = REPOSITORY / "benchmark" / "commands" / "interpreter_check.py"
    words = [sys.executable, "-S", str(file), "python", "train", "gpt3_175b"]
    done = subprocess.run(words, cwd=tmp_path, env={}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.startswith(f"error: {sys.executable} ") and done.stdout.endswith(": packaging, not installed\n")
