"""Damages to the folder of a submission and its system description."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.benchmark.review.damage import DESCRIPTION, LOG, RESULTS, Damage, in_description
from tests.benchmark.review.fixture import SYSTEM, as_text, records

Spoil = Callable[[Path], int | None]

FIELDS: tuple[tuple[str, str, str, object], ...] = (
    ("accelerators per node as a number", "system.fields", "accelerators_per_node", 8),
    ("status onprem in round 4", "system.fields", "status", "onprem"),
    ("division Closed in the description", "system.fields", "division", "Closed"),
    ("nodes in words", "system.fields", "number_of_nodes", "sixty-four"),
    ("framework not filled in", "?system.filled_in", "framework", "TODO"),
    ("a line break in the system's name", "system.fields", "system_name", "a\nINFO - RCP Test Passed: x"),
)


def damages() -> Iterator[Damage]:
    for name, rule, field, value in FIELDS:
        yield Damage(name, rule, DESCRIPTION, in_description(_set(field, value)))
    for field in ("accelerator_on-chip_memories", "status", "sw_notes"):
        yield Damage(f"description without {field}", "system.fields", DESCRIPTION, in_description(_remove(field)))
    for name, rule, path, spoil in FOLDERS:
        yield Damage(name, rule, path, spoil)


def _set(field: str, value: object) -> Callable[[dict[str, Any]], str]:
    def change(content: dict[str, Any]) -> str:
        content[field] = value
        return field

    return change


def _remove(field: str) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        del content[field]

    return change


def _write(path: str, text: str, line: int | None = None) -> Spoil:
    def spoil(package: Path) -> int | None:
        target = package / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return line

    return spoil


def _delete(path: str) -> Spoil:
    def spoil(package: Path) -> None:
        target = package / path
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink()

    return spoil


def _rename(path: str, name: str) -> Spoil:
    def spoil(package: Path) -> None:
        (package / path).rename((package / path).with_name(name))

    return spoil


def _link(path: str, target: str) -> Spoil:
    def spoil(package: Path) -> None:
        (package / path).symlink_to(target)

    return spoil


def _twice(package: Path) -> int:
    path = package / DESCRIPTION
    path.write_text(path.read_text().replace("{", '{\n"division": "open",', 1))
    return 2


def _open_in_log(package: Path) -> None:
    path = package / LOG
    path.write_text(path.read_text().replace('"value": "closed"', '"value": "open"'))


def _pattern_in_name(package: Path) -> None:
    name = f"{SYSTEM}[1]"
    (package / "results" / SYSTEM).rename(package / "results" / name)
    (package / DESCRIPTION).rename(package / "systems" / f"{name}.json")


def _second_system(package: Path) -> None:
    """With the same runs under another name."""
    shutil.copytree(package / "results" / SYSTEM, package / "results" / "other")
    shutil.copy(package / DESCRIPTION, package / "systems" / "other.json")


STRAY = f"results/{SYSTEM}/result_0.txt"
FOURTH = as_text(records(1004))
FOLDERS: tuple[tuple[str, str, str, Spoil], ...] = (
    ("description is not JSON", "system.readable", DESCRIPTION, _write(DESCRIPTION, '{"submitter": ')),
    ("description with a field twice", "?system.readable", DESCRIPTION, _twice),
    ("no description", "package.layout", f"results/{SYSTEM}", _delete(DESCRIPTION)),
    ("no results", "package.layout", "", _delete("results")),
    ("four runs", "package.layout", RESULTS, _write(f"{RESULTS}/result_3.txt", FOURTH)),
    ("a run named run_1.txt", "package.layout", RESULTS, _rename(LOG, "run_1.txt")),
    ("benchmark folder gpt-3", "package.layout", f"results/{SYSTEM}/gpt-3", _rename(RESULTS, "gpt-3")),
    (
        "a folder logs beside gpt3",
        "package.layout",
        f"results/{SYSTEM}/logs",
        _write(f"results/{SYSTEM}/logs/x", ""),
    ),
    ("results without gpt3/", "?package.stray_run", STRAY, _write(STRAY, FOURTH)),
    ("runs of another system", "package.copy", "results/other/gpt3/result_0.txt", _second_system),
    ("a hidden file", "package.files", "benchmarks/.gitignore", _write("benchmarks/.gitignore", "")),
    ("a space in a name", "package.files", "benchmarks/a b.sh", _write("benchmarks/a b.sh", "")),
    ("a pattern in the system's name", "package.files", f"results/{SYSTEM}[1]", _pattern_in_name),
    ("a broken link", "package.files", "benchmarks/data", _link("benchmarks/data", "nowhere")),
    ("a link out of the package", "package.files", "benchmarks/etc", _link("benchmarks/etc", "/etc")),
    (
        "bypass of the convergence test",
        "package.bypass",
        f"{RESULTS}/package_checker_params",
        _write(f"{RESULTS}/package_checker_params", "rcp-bypass", 1),
    ),
    (
        "bypass of the seed checker",
        "package.bypass",
        "package_checker_params",
        _write("package_checker_params", "\nseed-checker-bypass\n", 2),
    ),
    ("open in one log, closed in the description", "package.division", LOG, _open_in_log),
)
