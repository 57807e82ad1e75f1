"""Imported by processes of tests: what they write waits for no disk, which takes longer than writing it.

No test can tell whether the power failed. What is brought to the disk must be open; the rehearsal, commands in
interpreters of their own and tests/foundation/test_publish.py go the whole way, by ``posix.fsync``.
"""

import os
from typing import Any


def _unsynced(file: Any) -> None:
    os.fstat(file if isinstance(file, int) else file.fileno())


setattr(os, "fsync", _unsynced)  # noqa: B010
