"""Checks of one machine find what they are for."""

import resource
import shutil
import time
from pathlib import Path

import pytest

from benchmark.config.benchmarks import GPT3_175B
from benchmark.planning.preflight import machine_checks
from benchmark.training.checkpoints.save_policy import checkpoint_bytes
from tests.benchmark.planning.preflight.places import alone, large
from tests.benchmark.tiny import Inputs
from tests.support import changed


@pytest.mark.slow
def test_inputs_as_train_would_check_them(inputs: Inputs, tmp_path: Path) -> None:
    copies = Path(shutil.copytree(inputs.folder, tmp_path / "copies", ignore=shutil.ignore_patterns("checkpoint*")))
    with (copies / "train_1.bin").open("ab") as damaged:
        damaged.write(b"xx")
    finding = machine_checks.inputs(alone(Inputs(copies, inputs.whole_chunks).config(tmp_path / "run")))
    assert (finding.outcome, "train_1.bin" in finding.text) == ("FAILED", True)
    assert machine_checks.inputs(alone(large(tmp_path))).outcome == "skipped"
    half = changed(inputs.config(tmp_path / "run"), checkpoint=None)
    assert "--checkpoint is missing" in machine_checks.inputs(alone(half)).text


def test_space_for_checkpoints_of_the_real_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of 12 bytes for each of 174.6e9 parameters (docs/facts/peers.md 1.0), 64 machines to hold one."""
    process = alone(large(tmp_path / "run"))
    assert checkpoint_bytes(GPT3_175B.model) == pytest.approx(2.095e12, rel=1e-3)
    for free, outcome in ((6.2e12, "FAILED"), (6.3e12, "ok")):
        usage = shutil._ntuple_diskusage(int(1e13), 0, int(free))
        monkeypatch.setattr(shutil, "disk_usage", lambda _, usage=usage: usage)
        finding = machine_checks.disk_space(process)
        assert finding.outcome == outcome
        assert "6,287.2 GB needed for logs and 3 checkpoints" in finding.text
    assert "30.49 GiB needed" in machine_checks.host_memory(process).text


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what the processes need: 1,816 on rank 0 of 512, those of driver and NCCL not counted on a CPU."""
    places = (alone(large(tmp_path)), alone(None))
    for allowed, outcomes in ((1816, ("ok", "ok")), (1815, ("FAILED", "ok")), (200, ("FAILED", "FAILED"))):
        limit = {resource.RLIMIT_NOFILE: allowed, resource.RLIMIT_MEMLOCK: resource.RLIM_INFINITY}
        monkeypatch.setattr(resource, "getrlimit", lambda kind, limit=limit: (limit[kind], limit[kind]))
        assert tuple(machine_checks.limits(process).outcome for process in places) == outcomes, allowed
    assert "200 open files allowed, rank 0 needs up to 1816" in machine_checks.limits(places[0]).text


def test_limits_are_judged_as_a_run_raises_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now = {resource.RLIMIT_NOFILE: (1024, 65536), resource.RLIMIT_MEMLOCK: (-1, -1)}
    monkeypatch.setattr(resource, "getrlimit", now.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", now.__setitem__)
    assert machine_checks.limits(alone(large(tmp_path))).text == "open files 65536, up to 1816 needed"


def test_a_variable_that_is_set_to_something_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    process = alone(large(tmp_path))
    for value, outcome in ((None, "ok"), ("1", "ok"), ("8", "warning")):
        monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS", raising=False)
        if value is not None:
            monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", value)
        assert machine_checks.variables(process).outcome == outcome
    assert machine_checks.variables(process).text == "CUDA_DEVICE_MAX_CONNECTIONS=8, not 1"


def test_a_clock_in_the_past(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1e9)
    finding = machine_checks.clock(alone(None))
    assert (finding.outcome, "2001" in finding.text) == ("FAILED", True)


def test_software_and_manifests_that_differ() -> None:
    same = {"torch": "2.13.0", "nccl": "2.27"}
    measured = [("a", same), ("b", same), ("c", {**same, "nccl": "2.26"})]
    for judge in (machine_checks.same_versions, machine_checks.same_manifests):
        finding = judge(alone(None), measured)
        assert (finding.outcome, finding.text) == ("FAILED", "a and c differ: nccl 2.27 but 2.26")
        assert judge(alone(None), measured[:2]).outcome == "ok"
