from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files with names of all kinds."""
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "b.bin").write_bytes(b"b" * 100)
    (folder / "sub" / "a.bin").write_bytes(bytes(3_000_000))
    (folder / "A.bin").write_bytes(b"")
    (folder / "with space and \\").write_bytes(b"x")
    (folder / "line\nend\r").write_bytes(b"y")
    return folder
