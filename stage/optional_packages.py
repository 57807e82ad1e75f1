"""Packages that a single command needs and everything else does without."""

import importlib
from typing import Any

from stage.errors import InputError


def import_optional(module: str, package: str, purpose: str) -> Any:
    """Import ``module``. Raises InputError, saying how to install ``package``, where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"{purpose} needs {package}: pip install {package} ({error})") from error
