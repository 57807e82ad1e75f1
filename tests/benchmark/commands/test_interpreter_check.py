"""Whether a Python can run the benchmark, told before all processes find out."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmark.commands import interpreter_check
from benchmark.commands.interpreter_check import complaint, lacking_packages, main
from foundation import dependencies
from tests.support import REPOSITORY


def test_a_python_that_can_tells_the_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert complaint("python", "train", "rehearsal") == ""
    assert complaint("python", "evaluate", "rehearsal", "--system", "cpu_p1") == ""
    assert capsys.readouterr().out == "nodes 1\ndevices 2\ndevice cpu\nnodes 1\ndevices 1\ndevice cpu\n"


def test_an_old_python(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(interpreter_check, "OLDEST", (9, 9))
    assert main(["options", "train", "rehearsal"]) == 3
    assert capsys.readouterr().out.endswith("Python 9.9 or newer is needed\n")


def test_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependencies, "missing", lambda _: ["torch>=2.11, found 1.0", "zarr, not installed"])
    assert lacking_packages().endswith("torch>=2.11, found 1.0; zarr, not installed")


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


LACKING = ": packaging, not installed"
FACTS = "nodes 64\ndevices 8\ndevice cuda\nerror: "


@pytest.mark.parametrize(
    ("words", "status", "answer"),
    [
        ("python train gpt3_175b", 3, LACKING),
        ("options train gpt3_175b --nodes 64", 3, FACTS),
        ("names train gpt3_175b", 3, FACTS),
        ("options rehearse rehearsal", 3, LACKING),
        ("options train gpt3_175b --system {folder}/system.toml", 3, LACKING),
        ("options train gpt3_175b --system {folder}/none.toml", 2, "none.toml: No such file or directory; expected"),
        ("options train gpt3_175b --global-batch-size 7", 2, "global_batch_size 7 is not a multiple of micro_batch"),
        ("options evalute gpt3_175b", 2, "unknown command 'evalute'; did you mean evaluate?"),
        ("options rehearse foo", 2, "unknown rehearsal 'foo'; there are rehearsal, rehearsal_llama"),
        ("names train foo", 2, "unknown benchmark 'foo'; there are gpt3_175b"),
    ],
)
def test_by_a_python_that_has_no_packages(words: str, status: int, answer: str, tmp_path: Path) -> None:
    """From anywhere: the file finds the project's own modules; names and options need no package."""
    (tmp_path / "system.toml").write_text('device = "cpu"\nnodes = 1\ndevices_per_node = 1\nmicro_batch_size = 1\n')
    file = REPOSITORY / "benchmark" / "commands" / "interpreter_check.py"
    line = [sys.executable, "-S", str(file), *words.format(folder=tmp_path).split()]
    done = subprocess.run(line, cwd=tmp_path, env={}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, "")
    assert answer in done.stdout and done.stdout.count("error: ") == 1
