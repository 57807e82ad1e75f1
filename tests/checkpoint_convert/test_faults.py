"""A few of the faults of ``faults.py``, by the system calls that matter most."""

from pathlib import Path

import pytest

from tests.checkpoint_convert.faults import Cases, Fault


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    return Cases(tmp_path_factory.mktemp("faults"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        Fault("write", 150, "ENOSPC", None, False),
        Fault("fsync", 120, "EIO", None, False),
        Fault("replace", 100, "EIO", "0/2", False),
        Fault("flock", 1, "ENOSYS", None, False),
        Fault("replace", 200, "kill", None, False),
        Fault("fsync", 60, "vanish", None, False),
    ],
    ids=str,
)
def test_a_fault_leaves_what_can_be_gone_on_with(fault: Fault, cases: Cases) -> None:
    assert cases.run(fault) in ("0", "2", "-9")


def test_folder_is_kept_tidy(cases: Cases) -> None:
    assert isinstance(cases.folder, Path)
    assert {path.name for path in cases.folder.iterdir()} == {
        "original",
        "original.manifest.json",
        "expected",
        "expected.md5",
        "expected.manifest.json",
    }
