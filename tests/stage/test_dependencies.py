"""What the project asks for, from pyproject.toml or from what pip installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import packaging

from stage import dependencies
from stage.dependencies import missing


def test_this_environment_has_what_pyproject_asks_for() -> None:
    assert missing("dev") == []


METADATA = """Metadata-Version: 2.4
Name: gpt3-training-benchmark
Version: 0.1.0
Requires-Dist: present>=1.2
Requires-Dist: pinned==3.0
Requires-Dist: absent>=7.1
Provides-Extra: dev
Requires-Dist: only-for-dev>=2.0; extra == "dev"
"""


def checked(folder: Path, *extra: str) -> tuple[int, list[str]]:
    """Exit status and lines of stage/dependencies.py, copied to ``folder`` and run as a file by a bare Python."""
    (folder / "stage").mkdir(exist_ok=True)
    shutil.copy(dependencies.__file__, folder / "stage")
    shutil.copytree(Path(packaging.__file__).parent, folder / "packaging", dirs_exist_ok=True)
    words = [sys.executable, "-S", str(folder / "stage" / "dependencies.py"), *extra]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def install(folder: Path, name: str, version: str) -> None:
    """What importlib.metadata knows of a package."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n")


def test_requirements_of_an_installed_package(tmp_path: Path) -> None:
    assert checked(tmp_path) == (1, ["gpt3-training-benchmark, not installed, and no pyproject.toml beside it"])
    install(tmp_path, "gpt3_training_benchmark", "0.1.0")
    (tmp_path / "gpt3_training_benchmark-0.1.0.dist-info" / "METADATA").write_text(METADATA)
    install(tmp_path, "present", "1.10.0+cpu")
    install(tmp_path, "pinned", "3.0.1")
    lacking = ["pinned==3.0, found 3.0.1", "absent>=7.1, not installed"]
    assert checked(tmp_path) == (1, lacking)
    assert checked(tmp_path, "dev") == (1, [*lacking, "only-for-dev>=2.0, not installed"])
    for name, version in (("absent", "7.1a0"), ("only_for_dev", "10")):
        install(tmp_path, name, version)
    shutil.rmtree(tmp_path / "pinned-3.0.1.dist-info")
    install(tmp_path, "pinned", "3.0")
    assert checked(tmp_path, "dev") == (0, [])
