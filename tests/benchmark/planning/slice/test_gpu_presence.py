"""Whether there may be a GPU, without PyTorch."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmark.planning.slice.gpu_presence import require_gpu
from foundation.errors import InputError
from foundation.git import REPOSITORY


def no_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuda: str) -> tuple[Path, ...]:
    """Make this Python's PyTorch look like one with ``cuda``; return driver files that do not exist."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    (tmp_path / "torch" / "version.py").write_text(f"__version__ = '2.99'\ncuda = {cuda}\n")
    spec = SimpleNamespace(origin=str(tmp_path / "torch" / "__init__.py"))
    monkeypatch.setattr("benchmark.planning.slice.gpu_presence.find_spec", lambda _: spec)
    return (tmp_path / "nvidiactl", tmp_path / "dxg")


def test_a_build_without_cuda_and_a_machine_without_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = no_driver(tmp_path, monkeypatch, "None")
    with pytest.raises(InputError, match=r"^device cuda: PyTorch was built without CUDA \(version 2\.99\); .* ON_CPU$"):
        require_gpu("cuda", "ON_CPU", files)
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.99'\ncuda = '13.0'\n")
    with pytest.raises(InputError, match=r"^device cuda: no NVIDIA driver is loaded: .*nvidiactl and .*dxg do not"):
        require_gpu("cuda", "ON_CPU", files)
    files[1].touch()
    require_gpu("cuda", "ON_CPU", files)
    require_gpu("cpu", "ON_CPU", ())


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
@pytest.mark.parametrize("words", ["slice gpt3_175b", "preflight --first-contact", "plan gpt3_175b --what-if foo"])
def test_commands_refuse_before_pytorch_is_imported(words: str) -> None:
    code = (
        "import sys\nfrom benchmark.__main__ import main\nfrom foundation.errors import InputError\n"
        f"try:\n    main({words.split()!r})\n"
        "except InputError as error:\n    print('torch' in sys.modules, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(("False device cuda: ", "False --what-if foo: ")), done.stdout + done.stderr
