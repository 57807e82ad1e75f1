"""Plans: the benchmark's checkpoint within its memory, what is really done, and the time it takes."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from checkpoint_convert.conversion.conversion_plan import (
    ArrayPlan,
    MachineRates,
    PlannedTime,
    plan_paxml_to_megatron,
    planned_time,
)
from checkpoint_convert.conversion.paxml_to_megatron import paxml_to_megatron
from checksums.md5_list import read_list
from stage.errors import InputError
from tests.checkpoint_convert.in_process import run
from tests.checkpoint_convert.tiny import GIB

MINUTE = 60 * 10**9


def test_plan_of_the_benchmarks_checkpoint() -> None:
    plans = {
        name: plan_paxml_to_megatron(None, dtype=name, workers=2, memory_limit=8 * GIB) for name in ("fp32", "bf16")
    }
    assert sum(plan.output_files for plan in plans["fp32"]) == 92_640
    assert sum(plan.output_files for plan in plans["bf16"]) == 123_520
    assert sum(plan.output_bytes for plan in plans["fp32"]) == 3 * 4 * 174_615_846_912
    assert all(plan.passes == 1 and plan.peak_bytes <= 8 * GIB for plan in plans["bf16"])
    tight = plan_paxml_to_megatron(None, dtype="bf16", workers=2, memory_limit=2 * GIB)
    assert all(plan.passes >= 1 and plan.peak_bytes <= 2 * GIB for plan in tight)
    with pytest.raises(InputError, match="--memory-limit is too small"):
        plan_paxml_to_megatron(None, dtype="bf16", workers=2, memory_limit=GIB // 4)


def test_plan_is_what_is_done(paxml: Path, tmp_path: Path) -> None:
    done = run("paxml-to-megatron", "--input", paxml, "--output", tmp_path / "out", "--dtype", "bf16", "--plan")
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
    paxml_to_megatron(paxml, tmp_path / "out", dtype="bf16", workers=1, memory_limit=GIB)
    assert f"{len(read_list(tmp_path / 'out.md5')):,} files" in done.stdout


PLAN = ArrayPlan(
    "a", 1, 2 * MINUTE, MINUTE, 1, at_once=100, passes=1, block_bytes=1, peak_bytes=1, bytes_to_read_once=1
)
RATES = {"disk": 1000.0, "network": 500.0}


@pytest.mark.parametrize(
    ("rates", "workers", "expected"),
    [
        (RATES, 100, PlannedTime("disk", 1, 3.0, "disk")),
        (RATES, 100, PlannedTime("bucket", 1, 4.0, "network")),
        (RATES, 100, PlannedTime("bucket", 4, 1.0, "network")),
        ({**RATES, "network": 4000.0}, 100, PlannedTime("bucket", 1, 1.0, "disk")),
        (RATES, 1, PlannedTime("disk", 1, 12.0, "workers")),
        (RATES, 2, PlannedTime("disk", 2, 3.0, "workers")),
    ],
)
def test_time_is_that_of_the_slowest(rates: Mapping[str, float], workers: int, expected: PlannedTime) -> None:
    plan = ArrayPlan(**{**vars(PLAN), "at_once": workers})
    assert planned_time([plan], expected.source, expected.nodes, MachineRates(**rates)) == expected
