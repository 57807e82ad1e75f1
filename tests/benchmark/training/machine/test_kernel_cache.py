"""The cache of compiled kernels is this user's alone."""

import os
from pathlib import Path

import pytest

from benchmark.training.machine.kernel_cache import cache_of_kernels


def _folder(temporary: Path) -> Path:
    variables = cache_of_kernels(temporary)
    assert variables["TRITON_CACHE_DIR"] == variables["TORCHINDUCTOR_CACHE_DIR"] + "/triton"
    return Path(variables["TORCHINDUCTOR_CACHE_DIR"])


def test_a_later_start_finds_it(tmp_path: Path) -> None:
    cache = _folder(tmp_path)
    assert cache == tmp_path / f"gpt3-kernels-{os.geteuid()}"
    assert cache.stat().st_mode & 0o777 == 0o700
    assert _folder(tmp_path) == cache


@pytest.mark.parametrize("obstacle", ["writable by others", "link", "file", "no such folder"])
def test_another_one_is_made_where_others_may_write(
    obstacle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    usual = tmp_path / f"gpt3-kernels-{os.geteuid()}"
    if obstacle == "writable by others":
        usual.mkdir()
        usual.chmod(0o777)
    elif obstacle == "link":
        (tmp_path / "elsewhere").mkdir()
        usual.symlink_to(tmp_path / "elsewhere")
    elif obstacle == "file":
        usual.touch()
    cache = _folder(tmp_path / "missing" if obstacle == "no such folder" else tmp_path)
    assert cache != usual
    assert cache.stat().st_mode & 0o777 == 0o700
