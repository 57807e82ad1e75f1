"""Whether PyTorch can have a GPU here, known in a moment: neither PyTorch is imported nor a process started."""

import runpy
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from foundation.errors import InputError

DRIVER_FILES = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
"""Files of NVIDIA's driver on Linux, and of the driver for GPUs under WSL."""


def require_gpu(device: str, on_cpu: str, driver_files: Sequence[Path] = DRIVER_FILES) -> None:
    """Raise InputError if ``device`` is a GPU and this machine surely has none for PyTorch.

    The words ``on_cpu`` name the options for a machine without a GPU.
    """
    reason = "" if device == "cpu" else _missing_gpu(driver_files)
    if reason:
        raise InputError(f"device cuda: {reason}, or measure something small on this machine's CPU: {on_cpu}")


def _missing_gpu(driver_files: Sequence[Path]) -> str:
    """Return the reason why there is no GPU; empty if there may be one."""
    spec = find_spec("torch")
    version_file = Path(spec.origin or "").with_name("version.py") if spec is not None else None
    if version_file is not None and version_file.is_file():
        version = runpy.run_path(str(version_file))
        if version.get("cuda") is None:
            return f"PyTorch was built without CUDA (version {version['__version__']}); install its CUDA build"
    if not any(file.exists() for file in driver_files):
        return f"no NVIDIA driver is loaded: {' and '.join(map(str, driver_files))} do not exist; mend the driver"
    return ""
