"""The memory that a process may take: the least that any of its control groups allows."""

import os
from pathlib import Path

import pytest

from checkpoint_convert.conversion import machine_memory
from checkpoint_convert.conversion.machine_memory import memory_of_this_process, memory_problem, require_memory
from stage.errors import InputError

GIB = 1 << 30
MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


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
def test_the_least_of_all_limits(
    own: str | None, files: dict[str, object], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_memory, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(machine_memory, "OWN_CGROUPS", tmp_path / "own")
    if own is not None:
        (tmp_path / "own").write_text(own)
    for name, limit in files.items():
        (tmp_path / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cgroup" / name).write_text(f"{limit}\n")
    assert memory_of_this_process() == min(expected, MACHINE)


def test_blocks_that_do_not_fit_are_refused() -> None:
    assert memory_problem(MACHINE // 2) is None
    with pytest.raises(InputError, match=r"the blocks take .* pass a smaller --memory-limit, such as \d+MiB"):
        require_memory(MACHINE)
