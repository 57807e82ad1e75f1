"""What the switches of a run set up, and a trace of a run of two processes."""

import dataclasses
import gzip
import json
from pathlib import Path

import pytest

from benchmark.config.debug_switches import DebugSwitches
from benchmark.debugging.debug_observers import debug_environment, debugging
from benchmark.launch.phases import PhaseLog
from tests.benchmark.runs import run, system_of
from tests.benchmark.tiny import CPU, SHORT, Inputs


def test_logs_of_nccl_go_to_the_attempt(inputs: Inputs) -> None:
    attempt = Path("/run/attempts/0001")
    config = inputs.config(Path("/run"))
    assert debug_environment(config.debug, config.system.device, attempt) == {}
    gpu = dataclasses.replace(CPU, device="cuda")
    config = inputs.config(Path("/run"), system=gpu, debug=DebugSwitches(nccl_debug="INFO"))
    found = debug_environment(config.debug, config.system.device, attempt)
    assert found["NCCL_DEBUG"] == "INFO"
    assert found["NCCL_DEBUG_FILE"] == "/run/attempts/0001/nccl.%h.%p.log"
    assert "NCCL_DEBUG" not in debug_environment(DebugSwitches(), "cuda", attempt)


def test_nobody_observes_where_nothing_is_switched_on(inputs: Inputs, tmp_path: Path) -> None:
    phases = PhaseLog()
    for switches in (DebugSwitches(), DebugSwitches(profile="1:2", profile_ranks=(1,))):
        with debugging(inputs.config(tmp_path, debug=switches), tmp_path, 0, phases):
            pass
    assert phases._observers == []


@pytest.mark.slow
def test_steps_of_a_run_are_traced_on_the_ranks_that_are_named(inputs: Inputs, tmp_path: Path) -> None:
    switches = DebugSwitches(profile="4002:4003", profile_ranks=(1,))
    run(inputs, tmp_path / "run", system_of(2), benchmark=SHORT, debug=switches)
    (path,) = (tmp_path / "run" / "profile").iterdir()
    assert path.name == "steps_4002_4003_rank_00001.json.gz"
    with gzip.open(path) as file:
        names = [event.get("name") for event in json.load(file)["traceEvents"]]
    assert names.count("aten::native_layer_norm") >= 2 * 9  # of two steps, four blocks and what follows them
