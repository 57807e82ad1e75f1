"""Whether this Python has what the project asks for. Run as a file, before anything is installed; stdlib only.

python stage/dependencies.py [dev]    exit status 0: all there; 1: says what is missing

What it asks for is in pyproject.toml, beside the package in a checkout; where ``pip install`` put the package, pip has
noted the same in the distribution's metadata.
"""

import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

DISTRIBUTION = "gpt3-training-benchmark"
PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def missing(extra: str | None) -> list[str]:
    """Requirements that are not met, with what was found; those of ``extra``, too."""
    requirements = _of_pyproject(extra)
    if requirements is None:
        requirements = _of_metadata(extra)
    if requirements is None:
        return [f"{DISTRIBUTION}, not installed, and no pyproject.toml beside it"]
    return [problem for problem in map(_unmet, requirements) if problem]


def _of_pyproject(extra: str | None) -> list[str] | None:
    """None where there is no pyproject.toml, or another project's."""
    if not PYPROJECT.is_file():
        return None
    project = tomllib.loads(PYPROJECT.read_text()).get("project", {})
    if project.get("name") != DISTRIBUTION:
        return None
    found: list[str] = project["dependencies"] + (project["optional-dependencies"][extra] if extra else [])
    return found


def _of_metadata(extra: str | None) -> list[str] | None:
    """From lines such as ``numpy>=2.0`` and ``pytest>=8.0; extra == "dev"``; None where nothing is installed."""
    try:
        lines = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = []
    for requirement, _, marker in (line.partition(";") for line in lines):
        wanted_by = re.fullmatch(r"""\s*extra\s*==\s*["'](.+)["']\s*""", marker)
        if not marker or (wanted_by and wanted_by[1] == extra):
            found.append(requirement.strip())
    return found


def _unmet(requirement: str) -> str | None:
    parsed = re.fullmatch(r"([\w.-]+)(>=|==)([\d.]+)", requirement)
    if parsed is None:
        raise ValueError(f"pyproject.toml: {requirement!r} is not NAME>=VERSION or NAME==VERSION")
    name, relation, version = parsed.groups()
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return f"{requirement}, not installed"
    enough = _release_of(found) >= _release_of(version) if relation == ">=" else found == version
    return None if enough else f"{requirement}, found {found}"


def _release_of(version: str) -> list[int]:
    """'2.13.0+cpu' -> [2, 13, 0]; a suffix such as rc1 ends it."""
    release = re.match(r"\d+(\.\d+)*", version)
    return [int(number) for number in release[0].split(".")] if release else []


if __name__ == "__main__":
    problems = missing(sys.argv[1] if len(sys.argv) > 1 else None)
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)
