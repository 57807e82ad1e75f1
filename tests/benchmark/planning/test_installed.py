"""The wheel: it has all files of its packages; installed outside the checkout, a dry run names its lines there, too."""

import json
import os
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from foundation.git import REPOSITORY


@pytest.mark.slow
@pytest.mark.skipif(int(version("setuptools").split(".")[0]) < 77, reason="pyproject.toml asks for setuptools 77")
def test_an_installed_plan_is_that_of_the_checkout(tmp_path: Path) -> None:
    """The folder is named like that of other people's code."""
    packages = tmp_path / "site-packages"
    source = tmp_path / "source"
    files = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True, text=True).stdout
    for name in filter(None, files.split("\0")):
        if not name.startswith(("tests/", "docs/")) and (REPOSITORY / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((REPOSITORY / name).read_bytes())
    build = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(tmp_path), str(source)]
    subprocess.run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *build], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == {
        name for name in files.split("\0") if (REPOSITORY / name.partition("/")[0] / "py.typed").is_file()
    }
    zipfile.ZipFile(wheel).extractall(packages)  # as pip does, which compiles all modules, too
    words = [sys.executable, "-m", "benchmark", "plan", "llama31_8b", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (report,) = json.loads(done.stdout)["dry_run"]["reports"]
    assert [wait["where"].partition(":")[0] for wait in report["host_waits"]] == ["benchmark/training/step.py"]
