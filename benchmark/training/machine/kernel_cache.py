"""The folder of this machine in which compiled kernels are kept, so that the next start of a run finds them.

Each machine has its own, in the folder for temporary files (TMPDIR): on a shared disk 2,048 processes would lock and
rename the same files. PyTorch reads pickles from it, and loads code: nobody else may have made it or write to it.
"""

import os
import stat
import tempfile
from pathlib import Path

NAME = "gpt3-kernels"


def cache_of_kernels(folder: Path | None = None) -> dict[str, str]:
    """Return the environment variables that name the cache in ``folder``, by default the one for temporary files. If
    the cache there is not this user's alone, a new one is made, which later starts do not find."""
    folder = folder or Path(tempfile.gettempdir())
    cache = folder / f"{NAME}-{os.geteuid()}"
    try:
        cache.mkdir(mode=0o700, exist_ok=True)
        status = cache.lstat()
        private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
    except OSError:
        private = False
    if not private:
        cache = Path(tempfile.mkdtemp(prefix=f"{NAME}-"))
    return {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TRITON_CACHE_DIR": str(cache / "triton")}
