"""Deterministic kernels on demand: what is switched, that a run says so, and that it computes the same."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmark.machine.repeatability import use_deterministic_kernels
from tests.benchmark.runs import events, run, system_of
from tests.benchmark.tiny import SHORT, Inputs, in_processes


def _kernels() -> list[dict[str, Any]]:
    """Before and after."""
    found = []
    for chosen in (False, True):
        if chosen:
            use_deterministic_kernels()
        kernels = {
            "only deterministic": torch.are_deterministic_algorithms_enabled(),
            "warns": torch.is_deterministic_algorithms_warn_only_enabled(),
            "fills": torch.utils.deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]
            "cudnn": (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark),
        }
        found.append(kernels)
    return found


def test_kernels_are_chosen_on_demand() -> None:
    ((plain, chosen),) = in_processes(1, _kernels)
    assert plain == {"only deterministic": False, "warns": False, "fills": True, "cudnn": (False, False)}
    assert chosen == {"only deterministic": True, "warns": False, "fills": False, "cudnn": (True, False)}


@pytest.mark.slow
def test_on_a_cpu_they_compute_the_same(inputs: Inputs, tmp_path: Path) -> None:
    system = system_of(2, pipeline_parallel=2)
    found = [
        run(inputs, tmp_path / name, system, benchmark=SHORT, precision="bf16", deterministic=name == "deterministic")
        for name in ("plain", "deterministic")
    ]
    assert found[0] == found[1]
    told = [event["value"] for event in events(tmp_path / "deterministic", "message")]
    assert sum("--deterministic" in text for text in told) == 1
    assert json.loads((tmp_path / "deterministic" / "config.json").read_text())["deterministic"] is True
