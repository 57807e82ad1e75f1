"""environment.sh: which environment it takes, what it installs, and what it says where it cannot."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import REPOSITORY

INTERPRETER = f"""#!/bin/bash
# stands in for an interpreter without packages; PyTorch is at hand where TORCH_FOLDER is set
if [[ $1 == -m && $2 == venv ]]; then
  [[ -z $READ_ONLY ]] && mkdir -p "$3/bin" && cp "$0" "$3/bin/python"
elif [[ $1 == -m && $2 == pip ]]; then
  echo "${{*:3}}" >>"$CALLS"
  [[ "$*" != *"$REFUSED"* ]]
elif [[ $1 == -c && $2 == *sysconfig* ]]; then
  echo "$SITE_FOLDER"
elif [[ $1 == -c && $2 == *torch* ]]; then
  [[ $TORCH_FOLDER ]] && echo "$TORCH_FOLDER"
elif [[ $1 == */dependencies.py ]]; then
  [[ -e $SITE_FOLDER/installed ]]
else
  exec {sys.executable} "$@"
fi
"""
INDEX = "--index-url https://download.pytorch.org/whl/cpu"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("environment.sh", "requirements.lock", "requirements-dev.lock"):
        shutil.copy(REPOSITORY / name, tmp_path / name)
    (tmp_path / "bin").mkdir()
    (tmp_path / "site").mkdir()
    for name in ("python3", "nvidia-smi"):
        (tmp_path / "bin" / name).write_text(INTERPRETER if name == "python3" else "#!/bin/sh\nexit ${NO_GPU:-0}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def find_python(checkout: Path, extra: str = "", **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {
        "PATH": f"{checkout / 'bin'}:/usr/bin:/bin",
        "CALLS": str(checkout / "calls"),
        "SITE_FOLDER": str(checkout / "site"),
        "REFUSED": "nothing of it",
        "HOME": os.environ.get("HOME", "/"),
        **variables,
    }
    script = 'set -euo pipefail; source environment.sh; find_python "$PWD" %s; echo "PYTHON=$PYTHON"'
    return subprocess.run(
        ["bash", "-c", script % extra],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def pip_calls(checkout: Path) -> list[str]:
    calls = checkout / "calls"
    return calls.read_text().splitlines() if calls.exists() else []


@pytest.mark.parametrize(
    ("variables", "message", "calls"),
    [
        ({"NO_GPU": "1"}, "for the CPU, some 200 MB; TORCH_BUILD=cuda", [INDEX, "torch=="]),
        ({"NO_GPU": "0"}, "for GPUs, some 3 GB; TORCH_BUILD=cpu", ["torch=="]),
        ({"TORCH_BUILD": "cpu"}, "for the CPU, some 200 MB", [INDEX, "torch=="]),
        ({"NO_GPU": "1", "TORCH_BUILD": "cuda"}, "for GPUs, some 3 GB", ["torch=="]),
        ({"NO_GPU": "1", "REFUSED": "whl/cpu"}, "does not give it: torch==", [INDEX, "torch=="]),
        ({"TORCH_FOLDER": "/opt/torch"}, "PyTorch: the one in /opt/torch", [""]),
    ],
)
def test_the_build_is_the_machines_or_the_one_that_is_asked_for(
    checkout: Path, variables: dict[str, str], message: str, calls: list[str]
) -> None:
    process = find_python(checkout, **variables)
    assert message in process.stdout
    made = pip_calls(checkout)
    assert len(made) == len(calls)
    for call, words in zip(made, calls, strict=True):
        assert words in call
    assert ("torch==" in made[-1]) == ("TORCH_FOLDER" not in variables)
    at_hand = checkout / "site" / "torch_at_hand.pth"
    assert (at_hand.read_text() if at_hand.exists() else "") == (f"{variables.get('TORCH_FOLDER', '')}\n").lstrip()


def test_developers_get_both_locks_and_the_build_once(checkout: Path) -> None:
    process = find_python(checkout, "dev", NO_GPU="1")
    assert "Installing requirements-dev.lock into .venv (once)" in process.stdout
    first, second = pip_calls(checkout)
    assert INDEX in first and "torch==" in second


def test_another_pytorch_gets_an_environment_for_itself(checkout: Path) -> None:
    process = find_python(checkout, "dev 2.15.0", NO_GPU="0", TORCH_FOLDER="/opt/torch")
    assert "Installing requirements-dev.lock into .venv-torch-2.15.0 (once)" in process.stdout
    (call,) = pip_calls(checkout)
    assert call.endswith(" torch==2.15.0")
    assert not (checkout / ".venv").exists() and not (checkout / "site" / "torch_at_hand.pth").exists()
    (checkout / "site" / "installed").touch()
    assert find_python(checkout, "dev 2.15.0").stdout == f"PYTHON={checkout}/.venv-torch-2.15.0/bin/python\n"


def test_an_environment_that_has_all_is_used(checkout: Path) -> None:
    (checkout / "site" / "installed").touch()
    process = find_python(checkout)
    assert process.stdout == f"PYTHON={checkout / 'bin' / 'python3'}\n"
    assert pip_calls(checkout) == []


def test_a_dry_run_installs_nothing(checkout: Path) -> None:
    process = find_python(checkout, DRY_RUN="1")
    assert process.returncode == 0
    assert process.stdout.startswith(
        "DRY_RUN=1 installs nothing; without it, requirements.lock goes into .venv first\n"
    )
    assert not (checkout / ".venv").exists() and pip_calls(checkout) == []


def test_without_a_network_it_says_what_to_bring(checkout: Path) -> None:
    process = find_python(checkout, REFUSED="install")
    assert process.returncode == 2
    assert "pip download --requirement requirements.lock --dest wheels" in process.stderr
    assert "pip install --no-index --find-links wheels --requirement requirements.lock" in process.stderr


def test_in_a_folder_that_cannot_be_written_it_says_so(checkout: Path) -> None:
    process = find_python(checkout, READ_ONLY="1")
    assert process.returncode == 2
    assert f"error: {checkout}/.venv cannot be made; use a copy of this folder that you can write" in process.stderr
    assert pip_calls(checkout) == []
