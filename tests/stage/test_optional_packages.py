"""Packages that only some commands need."""

import json
import sys

import pytest

from stage.errors import InputError
from stage.optional_packages import import_optional


def test_what_is_installed_is_imported() -> None:
    assert import_optional("json", "json", "a test") is json


def test_what_is_missing_is_named_with_what_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"^--picture needs matplotlib: pip install matplotlib \(.+\)$"):
        import_optional("matplotlib.figure", "matplotlib", "--picture")
