"""Check whether this Python has the packages that the project requires. It runs before anything is installed.

python foundation/dependencies.py [dev]    exit status 0: all there; 1: says which are missing

The requirements are in pyproject.toml, beside the package in a checkout; where ``pip install`` put the package, pip has
noted them in the distribution's metadata.
"""

import importlib.metadata
import sys
import tomllib
from pathlib import Path

DISTRIBUTION = "gpt3-training-benchmark"
PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def missing(extra: str | None) -> list[str]:
    """Return the requirements that are not met, including those of ``extra``, each with the version found instead."""
    try:
        from packaging.requirements import Requirement
        from packaging.version import Version
    except ImportError:
        return ["packaging, not installed"]
    texts = _of_pyproject(extra)
    if texts is None:
        try:
            texts = importlib.metadata.requires(DISTRIBUTION) or []
        except importlib.metadata.PackageNotFoundError:
            return [f"{DISTRIBUTION}, not installed, and no pyproject.toml beside it"]
    problems = []
    for requirement in map(Requirement, texts):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra or ""}):
            continue
        name = f"{requirement.name}{requirement.specifier}"
        try:
            installed = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            problems.append(f"{name}, not installed")
            continue
        if not requirement.specifier.contains(Version(installed).base_version):  # containers have PyTorch 2.11.0a0
            problems.append(f"{name}, found {installed}")
    return problems


def _of_pyproject(extra: str | None) -> list[str] | None:
    """Return the requirements; None if there is no pyproject.toml, or it is another project's."""
    if not PYPROJECT.is_file():
        return None
    project = tomllib.loads(PYPROJECT.read_text()).get("project", {})
    if project.get("name") != DISTRIBUTION:
        return None
    requirements: list[str] = project["dependencies"] + (project["optional-dependencies"][extra] if extra else [])
    return requirements


if __name__ == "__main__":
    problems = missing(sys.argv[1] if len(sys.argv) > 1 else None)
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)
