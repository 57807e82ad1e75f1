import json
from pathlib import Path

import pytest

from benchmark.slice_run.first_contact.contact_result import ContactResult, PartResult


def test_the_file_is_whole_after_each_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = ContactResult("1 x NVIDIA H200", "2.11.0", "2026-01-01T00:00:00+0000")
    result.add(PartResult("features", "ok", "22 of 24 work", 61.0, [{"name": "gelu"}]), tmp_path)
    assert json.loads((tmp_path / "contact.json").read_text())["passed"] is True
    result.add(PartResult("slice", "failed", "status 1: out of memory", 5.0), tmp_path)
    found = json.loads((tmp_path / "contact.json").read_text())
    assert (found["format"], found["passed"], found["device"]) == (1, False, "1 x NVIDIA H200")
    assert [part["details"] for part in found["parts"]] == [[{"name": "gelu"}], None]
    assert capsys.readouterr().out.splitlines()[-1].split(None, 3) == [
        "failed",
        "slice",
        "5",
        "s  status 1: out of memory",
    ]
