"""What the official tools are given: copies in a scratch folder, under names that crash none of them.

The package checker and the summarizer write into what they check, and several tools take some characters of a path for
a pattern. Each copy is told by the real path it stands for.
"""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmark.results.mllog import MOST_BYTES
from benchmark.results.subjects import BENCHMARK, ResultSet, SubmissionPackage, subfolders

SAFE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")


@dataclass(frozen=True)
class PackageCopy:
    """A package as the tools see it."""

    path: Path
    renamed: Mapping[str, str]
    """Real path of each copy."""
    notes: tuple[str, ...]
    """What of its names was replaced."""


def copy_package(package: SubmissionPackage, scratch: Path) -> PackageCopy:
    """Copy systems/, and results/ of gpt3 and of folders no tool knows."""
    notes: list[str] = []
    renamed: dict[str, str] = {}

    def copy_as(path: Path, stand_in: str) -> str:
        if SAFE_NAME.fullmatch(path.name):
            return path.name
        notes.append(f"{path.name!r} went to the tools as {stand_in}: they take its characters for a pattern")
        return stand_in

    root = scratch / copy_as(package.path, "SUBMITTER")
    renamed[str(root)] = str(package.path)
    for name in ("systems", "results"):
        if (package.path / name).is_dir():
            (root / name).mkdir(parents=True)
    for description in package.descriptions:
        renamed |= copy_file(description.path, root / "systems" / _safe_stem(description.path))
    for system in subfolders(package.results):
        folder = root / "results" / copy_as(system, _safe(system.name))
        folder.mkdir()
        renamed[str(folder)] = str(system)
        _copy_parameters(system, folder)
        for benchmark in subfolders(system):
            if benchmark.name == BENCHMARK or not _is_other_benchmark(benchmark.name, package.ruleset):
                _copy_tree(benchmark, folder / _safe(benchmark.name), renamed)
    return PackageCopy(root, renamed, tuple(notes))


def _is_other_benchmark(name: str, ruleset: str) -> bool:
    from mlperf_logging.benchmark_meta import get_allowed_benchmarks

    return name in get_allowed_benchmarks("training", ruleset)


def _safe(name: str) -> str:
    return name if SAFE_NAME.fullmatch(name) else re.sub(r"[^A-Za-z0-9._+-]", "_", f"_{name}")


def _safe_stem(path: Path) -> str:
    return f"{_safe(path.stem)}{path.suffix}"


def _copy_parameters(source: Path, folder: Path) -> None:
    path = source / "package_checker_params"
    if path.is_file():
        copy_file(path, folder / path.name)


def _copy_tree(source: Path, folder: Path, renamed: dict[str, str], depth: int = 3) -> None:
    """Regular files and links to them; power logs lie two folders deeper."""
    folder.mkdir(parents=True, exist_ok=True)
    renamed[str(folder)] = str(source)
    for path in sorted(source.iterdir()):
        if path.is_file() and path.stat().st_size <= MOST_BYTES:
            renamed |= copy_file(path, folder / _safe(path.name))
        elif path.is_dir() and not path.is_symlink() and depth > 0:
            _copy_tree(path, folder / _safe(path.name), renamed, depth - 1)


def copy_results(one: ResultSet, folder: Path) -> dict[str, str]:
    """Copy the runs of one system as result_0.txt, result_1.txt …; returns the real path of each copy."""
    renamed: dict[str, str] = {}
    for number, path in enumerate(one.files):
        renamed |= copy_file(path, folder / f"result_{number}.txt")
    return renamed


def copy_file(path: Path, target: Path) -> dict[str, str]:
    """Copy a file that is not too large, else leave an empty one: the tools then fail on it, as they should.

    Returns the copy and the path it stands for.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.stat().st_size <= MOST_BYTES:
        shutil.copyfile(path, target)
    else:
        target.touch()
    return {str(target): str(path)}
