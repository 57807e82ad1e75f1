"""Packages that only some commands need."""

import sys
from pathlib import Path

import pytest

from stage.errors import InputError
from stage.optional_packages import import_optional, require_optional


def test_what_is_missing_is_named_with_what_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.figure", raising=False)  # another test may have imported it
    with pytest.raises(InputError, match=r"^--picture needs matplotlib: pip install matplotlib \(.+\)$"):
        import_optional("matplotlib.figure", "matplotlib", "--picture")


def test_what_another_process_needs_is_found_without_an_import(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "there.py").write_text("raise RuntimeError('imported')")
    (tmp_path / "folder").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    require_optional("there", "there", "a test")
    for module in ("folder", "absent_package"):
        with pytest.raises(InputError, match=f"^a test needs {module}: pip install {module}$"):
            require_optional(module, module, "a test")
