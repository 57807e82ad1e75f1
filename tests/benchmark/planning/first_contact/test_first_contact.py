"""The parts of a first contact, each in a process of its own, and its result file."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmark.planning.first_contact import first_contact as module
from benchmark.planning.first_contact.features import FEATURES
from benchmark.planning.first_contact.first_contact import ContactPart, PartResult, first_contact, parts
from benchmark.planning.slice.slice_devices import DeviceFacts
from foundation.errors import InputError

ONE, EIGHT = DeviceFacts("NVIDIA H200", 1, 140 << 30), DeviceFacts("NVIDIA H200", 8, 140 << 30)
WRITES = "import json, sys\nopen(sys.argv[1], 'w').write(json.dumps({'said': 'well'}))\n"
HANGS = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(1000)'])"
CRASHES = "import os, sys\nprint('a library says why', file=sys.stderr, flush=True)\nos.abort()"


def told(found: Any) -> str:
    return str(found["said"])


def part(folder: Path, text: str, **fields: Any) -> ContactPart:
    """A part that is a module in ``folder``."""
    (folder / "part_of_a_test.py").write_text(text)
    return ContactPart("a part", ("part_of_a_test", str(folder / "result.json")), 60.0, **fields)


LEAVES = {"result": "result.json", "line_of": told}


@pytest.mark.parametrize(
    ("text", "fields", "limit_s", "outcome", "said"),
    [
        (WRITES, LEAVES, 60.0, "ok", "well"),
        (WRITES + "sys.exit('no plan')", LEAVES, 60.0, "failed", "status 1: well; no plan"),
        (
            "import sys\nsys.exit('error: no such kernel')",
            LEAVES,
            60.0,
            "failed",
            "it printed nothing; error: no such kernel",
        ),
        ("print('errors: 0.002')", {}, 60.0, "ok", "errors: 0.002"),
        ("print('wrong')\nraise SystemExit(1)", {"without": "slower"}, 60.0, "failed", "status 1: wrong"),
        ("print('no FP8')\nraise SystemExit(2)", {"left_out_status": 2, "without": "BF16"}, 60.0, "left out", "no FP8"),
        ("print('no layer fits')\nraise SystemExit(2)", {}, 60.0, "failed", "status 2: no layer fits"),
        (CRASHES, {}, 60.0, "failed", "status -6: it printed nothing; a library says why"),
        (HANGS, {}, 0.5, "failed", "not finished within 0 s: it printed nothing"),
    ],
)
def test_a_part_tells_of_what_it_left(
    text: str,
    fields: dict[str, Any],
    limit_s: float,
    outcome: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "result.json").write_text('{"said": "of an earlier contact"}')
    found = module._run(part(tmp_path, text, **fields), tmp_path, limit_s)
    assert (found.outcome, said in found.found) == (outcome, True), found
    assert found.details == ({"said": "well"} if "well" in said else None)
    assert found.without == fields.get("without", "")


def test_more_devices_make_more_parts(tmp_path: Path) -> None:
    cpu, one, eight = (
        [part.name for part in parts(facts, tmp_path)] for facts in (DeviceFacts("cpu", 2, 0), ONE, EIGHT)
    )
    assert one == [*FEATURES, "environment", "slice", "preflight", "slice of two", "contention", "slice in FP8"]
    assert eight == [*one, "tensor slice", "pipeline slice"]
    assert cpu == [name for name in one[:-3] if "cudnn" not in name and "efficient" not in name]
    tensor = list(parts(EIGHT, tmp_path))[-2]
    assert tensor.arguments[-3:] == ("--tensor-parallel", "8", "--tune-collectives")


def test_a_part_that_fails_costs_no_other_and_time_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {
        "profiler": PartResult("profiler", "failed", "CUPTI", 1.0, "no traces"),
        "slice": PartResult("slice", "ok", "12 layers", 5.0, details={"mfu": 0.5}),
        "adam": PartResult("adam", "failed", "no kernel", 1.0),
    }
    monkeypatch.setattr(module, "device_facts", lambda _: ONE)
    monkeypatch.setattr(module, "parts", lambda *_: [ContactPart(name, (), 60.0) for name in found])
    monkeypatch.setattr(module, "_run", lambda part, *_: found[part.name])
    output = tmp_path / "out"
    assert not first_contact("cuda", output, 10.0).passed
    written = json.loads((output / "contact.json").read_text())
    assert (written["format"], written["passed"], written["device"]) == (2, False, "1 x NVIDIA H200")
    assert [part["name"] for part in written["parts"]] == list(found)
    assert written["parts"][1]["details"] == {"mfu": 0.5}
    assert "CUPTI; then no traces" in capsys.readouterr().out
    del found["adam"]
    assert first_contact("cuda", output, 10.0).passed
    assert {one.outcome for one in first_contact("cuda", output, 0.01).parts} == {"left out"}


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"output .*Not a directory; change --output"):
        first_contact("cpu", tmp_path / "file" / "out", 1.0)
