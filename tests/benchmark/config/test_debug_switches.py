"""Options that are refused."""

import dataclasses

import pytest

from benchmark.config.benchmarks import REHEARSAL
from benchmark.config.debug_switches import DebugSwitches
from benchmark.config.run_config import RunConfig
from benchmark.config.systems import SYSTEMS
from stage.errors import InputError


def test_steps_to_profile() -> None:
    assert DebugSwitches(profile="10:12").profiled_steps == (10, 12)
    assert DebugSwitches(profile="7:7").profiled_steps == (7, 7)
    assert DebugSwitches().profiled_steps is None
    for wrong in ("4012:4010", "0:3", "5", "a:b", "-1:3", "", "1:2:3"):
        with pytest.raises(InputError, match="expected FIRST:LAST"):
            DebugSwitches(profile=wrong)
    with pytest.raises(InputError, match="--profile-ranks"):
        DebugSwitches(profile_ranks=(0, -1))


def test_switches_of_gpus_are_refused_without_one() -> None:
    wanted = DebugSwitches(nvtx=True, memory_snapshot=True)
    with pytest.raises(InputError, match="--nvtx, --memory-snapshot: system cpu_p1 has no GPU"):
        RunConfig(REHEARSAL, SYSTEMS["cpu_p1"], debug=wanted)
    with pytest.raises(InputError, match="--nccl-debug"):
        RunConfig(REHEARSAL, SYSTEMS["cpu_p1"], debug=DebugSwitches(nccl_debug="INFO"))
    gpu = dataclasses.replace(SYSTEMS["cpu_p1"], device="cuda")
    assert RunConfig(REHEARSAL, gpu, debug=wanted).debug.for_gpus == ["--nvtx", "--memory-snapshot"]
