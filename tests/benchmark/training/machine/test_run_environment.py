"""What a run says of the code and the machine it ran on, and deterministic kernels on demand."""

import json
import platform
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from benchmark.training.machine import run_environment as module
from benchmark.training.machine.run_environment import (
    PACKAGES,
    float32_products,
    kernel_facts,
    run_environment,
    use_deterministic_kernels,
)
from foundation.git import commit_of
from tests.benchmark.runs import events, run, system_of
from tests.benchmark.tiny import SHORT, Inputs, in_processes


def test_versions_and_commit() -> None:
    found = run_environment("cpu")
    assert {package: found[package] for package in PACKAGES} == {package: version(package) for package in PACKAGES}
    assert (found["python"], found.get("commit")) == (platform.python_version(), commit_of())
    if not torch.cuda.is_available():
        assert run_environment("cuda") == found


def test_products_of_fp32_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (float32_products("cpu"), float32_products("cuda")) == ("fp32", "fp32")
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    assert (float32_products("cpu"), float32_products("cuda")) == ("fp32", "tf32")


def test_kernels_of_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Acme 9 @ 3 GHz\nmodel name\t: Acme 8\n")
    for there, name in (("cpuinfo", "Acme 9 @ 3 GHz"), ("none", platform.machine())):
        monkeypatch.setattr(module, "CPUINFO", tmp_path / there)
        facts = kernel_facts(torch.device("cpu"), deterministic=False)
        assert (facts["device"], facts["deterministic"], facts["threads"]) == (name, True, torch.get_num_threads())


def _chosen() -> list[bool]:
    use_deterministic_kernels()
    filled = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    cudnn = torch.backends.cudnn
    return [torch.are_deterministic_algorithms_enabled(), cudnn.deterministic, not filled, not cudnn.benchmark]


def test_deterministic_kernels_are_chosen_on_demand() -> None:
    assert in_processes(1, _chosen) == [[True] * 4]


@pytest.mark.slow
def test_on_a_cpu_deterministic_kernels_compute_the_same(inputs: Inputs, tmp_path: Path) -> None:
    system = system_of(1)
    found = [
        run(inputs, tmp_path / name, system, benchmark=SHORT, precision="bf16", deterministic=name == "deterministic")
        for name in ("plain", "deterministic")
    ]
    assert found[0] == found[1]
    told = [event["value"] for event in events(tmp_path / "deterministic", "message")]
    assert sum("--deterministic" in text for text in told) == 1
    assert json.loads((tmp_path / "deterministic" / "config.json").read_text())["deterministic"] is True
