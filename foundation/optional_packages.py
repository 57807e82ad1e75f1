"""Import packages that only a single command needs."""

import importlib
import importlib.util
from typing import Any

from foundation.errors import InputError


def import_optional(module: str, package: str, purpose: str) -> Any:
    """Import ``module``. Raises InputError, with the command to install ``package``, if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"{purpose} needs {package}: pip install {package} ({error})") from error


def require_optional(module: str, package: str, purpose: str) -> None:
    """Raise InputError if ``package`` is not installed, without importing ``module``, which another process will do."""
    spec = importlib.util.find_spec(module)
    # a folder of that name, as the package itself may leave one, is found, too, but has no file
    if spec is None or spec.origin is None:
        raise InputError(f"{purpose} needs {package}: pip install {package}")
