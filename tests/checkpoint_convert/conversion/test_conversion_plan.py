"""Plans: the benchmark's checkpoint within its memory, what is really done, and the time it takes."""

import json
import os
import re
from pathlib import Path

import pytest

from checkpoint_convert.conversion import workspace
from checkpoint_convert.conversion.conversion_plan import ConversionPlan, plan_paxml_to_megatron
from checkpoint_convert.conversion.paxml_to_megatron import paxml_to_megatron
from checkpoint_convert.conversion.workspace import memory_of_this_process, memory_problem
from foundation.errors import InputError
from foundation.file_formats.md5_list import read_list
from tests.checkpoint_convert.in_process import run
from tests.checkpoint_convert.tiny import GIB

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
ARRAY_LINE = r"^ *[\d,]+ +[\d,.]+ k?[BMGT]+ +\d+ "
""" files    output  blocks …"""


def plan_of(dtype: str, workers: int, memory_limit: int, network: int = 1000) -> ConversionPlan:
    return plan_paxml_to_megatron(
        None,
        dtype=dtype,
        workers=workers,
        memory_limit=memory_limit,
        disk_mb_per_s=1000,
        network_mb_per_s=network,
        nodes=(1, 8),
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
    assert len(re.findall(ARRAY_LINE, done.stdout, re.M)) == 48


@pytest.mark.parametrize(
    ("network", "workers", "times"),
    [
        (1000, 16, [("disk", 1, 75.7, "disk"), ("bucket", 1, 40.7, "disk"), ("disk", 8, 9.5, "disk")]),
        (250, 16, [("disk", 1, 75.7, "disk"), ("bucket", 1, 139.7, "network"), ("disk", 8, 9.5, "disk")]),
        (1000, 1, [("disk", 1, 302.7, "workers"), ("bucket", 1, 302.7, "workers"), ("disk", 8, 37.8, "workers")]),
    ],
)
def test_times_are_those_of_the_manual(network: int, workers: int, times: list[tuple[object, ...]]) -> None:
    plan = plan_of("bf16", workers, 64 * GIB, network)
    found = [(one.source, one.nodes, round(one.minutes, 1), one.limited_by) for one in plan.times]
    assert found[:3] == times


def test_command_prints_a_table_or_json() -> None:
    words = ["plan", "--memory-limit", "64GiB", "--workers", 16]
    told = json.loads(run(*words, "--json").stdout)
    assert (told["files"], len(told["arrays"]), len(told["times"])) == (123_522, 48, 4)
    lines = run(*words).stdout.splitlines()
    assert sum(bool(re.match(ARRAY_LINE, line)) for line in lines) == 48
    assert sum(line.endswith("params.lm.transformer.repeat.sub.x_layers_0.") for line in lines) == 3
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/job/step\n", {"job/memory.max": GIB, "job/step/memory.max": "max"}, GIB),
        ("0::/\n", {"memory.max": 2 * GIB}, 2 * GIB),
        ("3:cpu:/x\n2:memory:/job\n", {"memory/job/memory.limit_in_bytes": GIB}, GIB),
        ("0::/\n", {}, MACHINE),
        (None, {}, MACHINE),
    ],
)
def test_memory_is_the_least_of_all_limits(
    own: str | None, files: dict[str, object], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(workspace, "OWN_CGROUPS", tmp_path / "own")
    if own is not None:
        (tmp_path / "own").write_text(own)
    for name, limit in files.items():
        (tmp_path / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cgroup" / name).write_text(f"{limit}\n")
    assert memory_of_this_process() == min(expected, MACHINE)


def test_blocks_that_do_not_fit_are_told(paxml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory_problem(MACHINE // 2) is None
    monkeypatch.setattr(workspace, "memory_of_this_process", lambda: 10_000)
    assert run("plan").stderr.startswith("warning: the blocks take")
    words = ["paxml-to-megatron", "--input", paxml, "--output", tmp_path / "out", "--dtype", "bf16"]
    run(*words).refused("the blocks take", "pass a smaller --memory-limit, such as")
