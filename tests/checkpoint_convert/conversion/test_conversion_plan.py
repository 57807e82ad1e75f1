"""Plans: the benchmark's checkpoint within its memory, what is really done, and the time it takes."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from checkpoint_convert.conversion.conversion_plan import ConversionPlan, MachineRates, plan_paxml_to_megatron
from checkpoint_convert.conversion.paxml_to_megatron import paxml_to_megatron
from checksums.md5_list import read_list
from stage.errors import InputError
from tests.checkpoint_convert.in_process import run
from tests.checkpoint_convert.tiny import GIB

RATES = MachineRates(1000, 1000)


def plan_of(
    dtype: str, workers: int, memory_limit: int, rates: MachineRates = RATES, nodes: Sequence[int] = ()
) -> ConversionPlan:
    return plan_paxml_to_megatron(
        None, dtype=dtype, workers=workers, memory_limit=memory_limit, rates=rates, nodes=nodes
    )


def test_plan_of_the_benchmarks_checkpoint() -> None:
    plans = {name: plan_of(name, 2, 8 * GIB) for name in ("fp32", "bf16")}
    assert [plans[name].files for name in ("fp32", "bf16")] == [92_642, 123_522]
    assert plans["fp32"].bytes_written == 3 * 4 * 174_615_846_912
    assert plans["bf16"].passes == 1
    assert plans["bf16"].peak_bytes <= 8 * GIB
    assert plan_of("bf16", 2, 2 * GIB).peak_bytes <= 2 * GIB
    with pytest.raises(InputError, match="--memory-limit is too small"):
        plan_of("bf16", 2, GIB // 4)


def test_plan_is_what_is_done(paxml: Path, tmp_path: Path) -> None:
    done = run("paxml-to-megatron", "--input", paxml, "--output", tmp_path / "out", "--dtype", "bf16", "--plan")
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
    paxml_to_megatron(paxml, tmp_path / "out", dtype="bf16", workers=1, memory_limit=GIB)
    assert f"{len(read_list(tmp_path / 'out.md5')):,} files" in done.stdout


@pytest.mark.parametrize(
    ("network", "workers", "source", "nodes", "minutes", "limited_by"),
    [
        (1000, 16, "disk", 1, 75.7, "disk"),
        (1000, 16, "bucket", 1, 40.7, "disk"),
        (250, 16, "bucket", 8, 17.5, "network"),
        (1000, 1, "disk", 1, 302.7, "workers"),
        (1000, 1, "bucket", 8, 37.8, "workers"),
    ],
)
def test_time_is_that_of_the_slowest(
    network: float, workers: int, source: str, nodes: int, minutes: float, limited_by: str
) -> None:
    plan = plan_of("bf16", workers, 64 * GIB, MachineRates(1000, network), nodes=(nodes,))
    time = next(time for time in plan.times if time.source == source)
    assert (time.nodes, round(time.minutes, 1), time.limited_by) == (nodes, minutes, limited_by)
