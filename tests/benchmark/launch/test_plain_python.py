"""On the host of a Slurm job there may be only bash and Python: what runs there imports no more, and is no newer."""

import ast
import sys
from pathlib import Path

from tests.support import REPOSITORY

OLDEST = (3, 8)
ENTRIES = ("benchmark.launch.__main__", "benchmark.launch.slurm.sentinel")
NOT_THERE = "benchmark.launch.one_machine"
"""Imported where the launcher starts processes on its own machine, with the packages of the benchmark."""
TOO_NEW = ("removeprefix", "removesuffix", "pairwise", "UTC", "StrEnum", "batched")
"""Names of the standard library that came after 3.8."""


def source_of(module: str) -> Path | None:
    path = REPOSITORY.joinpath(*module.split("."))
    return next((one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file()), None)


def imported(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or ""} | {f"{node.module}.{name.name}" for name in node.names}
    return found


def test_launcher_needs_nothing_but_an_old_python() -> None:
    waiting, seen = list(ENTRIES), set[str]()
    while waiting:
        module = waiting.pop()
        path = source_of(module)
        if path is None or module in seen or module == NOT_THERE:
            continue
        seen.add(module)
        text = path.read_text()
        tree = ast.parse(text, feature_version=OLDEST)
        names = imported(tree)
        assert "from __future__ import annotations" in text or not any(
            isinstance(node, ast.AnnAssign | ast.FunctionDef) for node in ast.walk(tree)
        ), f"{path}: annotations would be evaluated"
        foreign = {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"benchmark", "foundation"}
        assert not foreign, f"{path} imports {foreign}"
        used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} | {
            name.rpartition(".")[2] for name in names
        }
        assert used.isdisjoint(TOO_NEW), path
        waiting += [name for name in names if name.startswith(("benchmark", "foundation"))]
    assert "benchmark.launch.next_attempt" in seen and "benchmark.launch.slurm.queue" in seen
