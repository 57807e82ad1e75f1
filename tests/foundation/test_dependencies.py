"""What the project asks for, from pyproject.toml or from what pip installed, and what only some commands need."""

import subprocess
import sys
from pathlib import Path

import pytest

from foundation import dependencies
from foundation.dependencies import missing
from foundation.errors import InputError
from foundation.optional_packages import import_optional, require_optional

METADATA = """Metadata-Version: 2.4
Name: gpt3-training-benchmark
Version: 0.1.0
Requires-Dist: present>=1.2
Requires-Dist: pinned==3.0
Requires-Dist: absent>=7.1
Provides-Extra: dev
Requires-Dist: only-for-dev>=2.0; extra == "dev"
"""


def test_this_environment_has_what_pyproject_asks_for() -> None:
    done = subprocess.run([sys.executable, dependencies.__file__, "dev"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def install(folder: Path, name: str, version: str, metadata: str = "") -> None:
    """What importlib.metadata knows of a package."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(metadata or f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n")


def test_requirements_of_an_installed_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("packaging.requirements")  # before the path that it is found on goes
    monkeypatch.setattr(dependencies, "PYPROJECT", tmp_path / "pyproject.toml")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "another"\n')
    assert missing(None) == ["gpt3-training-benchmark, not installed, and no pyproject.toml beside it"]
    install(tmp_path, "gpt3_training_benchmark", "0.1.0", METADATA)
    install(tmp_path, "present", "1.10.0+cpu")
    install(tmp_path, "pinned", "3.0.1")
    lacking = ["pinned==3.0, found 3.0.1", "absent>=7.1, not installed"]
    assert missing(None) == lacking
    assert missing("dev") == [*lacking, "only-for-dev>=2.0, not installed"]
    (tmp_path / "pinned-3.0.1.dist-info").rename(tmp_path / "gone")
    for name, version in (("absent", "7.1a0"), ("only_for_dev", "10"), ("pinned", "3.0")):
        install(tmp_path, name, version)
    assert missing("dev") == []


def test_what_is_missing_is_named_with_what_wants_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.delitem(sys.modules, "wandb.sdk", raising=False)  # another test may have imported it
    with pytest.raises(InputError, match=r"^--wandb needs wandb: pip install wandb \(.+\)$"):
        import_optional("wandb.sdk", "wandb", "--wandb")
    (tmp_path / "there.py").write_text("raise RuntimeError('imported')")
    (tmp_path / "folder").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    require_optional("there", "there", "a test")
    for module in ("folder", "absent_package"):
        with pytest.raises(InputError, match=f"^a test needs {module}: pip install {module}$"):
            require_optional(module, module, "a test")
