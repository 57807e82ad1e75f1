"""Whether this Python has what pyproject.toml asks for. Run as a file, before anything is installed; stdlib only.

python stage/dependencies.py [dev]    exit status 0: all there; 1: says what is missing
"""

import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path


def missing(extra: str | None) -> list[str]:
    """Requirements that are not met, with what was found."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    requirements = project["dependencies"] + (project["optional-dependencies"][extra] if extra else [])
    return [problem for problem in map(_problem, requirements) if problem]


def _problem(requirement: str) -> str | None:
    parsed = re.fullmatch(r"([\w.-]+)(>=|==)([\d.]+)", requirement)
    if parsed is None:
        raise ValueError(f"pyproject.toml: {requirement!r} is not NAME>=VERSION or NAME==VERSION")
    name, relation, version = parsed.groups()
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return f"{requirement}, not installed"
    enough = _numbers(found) >= _numbers(version) if relation == ">=" else found == version
    return None if enough else f"{requirement}, found {found}"


def _numbers(version: str) -> list[int]:
    """'2.13.0+cpu' -> [2, 13, 0]; a suffix such as rc1 ends it."""
    release = re.match(r"\d+(\.\d+)*", version)
    return [int(number) for number in release[0].split(".")] if release else []


if __name__ == "__main__":
    problems = missing(sys.argv[1] if len(sys.argv) > 1 else None)
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)
