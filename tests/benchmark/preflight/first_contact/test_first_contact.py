"""The parts of a first contact, and its result file."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmark.preflight.first_contact import first_contact as module
from benchmark.preflight.first_contact.features import FeatureResult
from benchmark.preflight.first_contact.first_contact import CommandPart, PartResult, first_contact, parts
from benchmark.preflight.slice_run.device_facts import DeviceFacts
from stage.errors import InputError

ONE, EIGHT = DeviceFacts("NVIDIA H200", 1, 140 << 30), DeviceFacts("NVIDIA H200", 8, 140 << 30)


def told(found: Any) -> str:
    return str(found["said"])


def script(folder: Path, text: str) -> tuple[str, ...]:
    """The words after "python -m" of a module in ``folder``."""
    (folder / "part_of_a_test.py").write_text(text)
    return ("part_of_a_test", str(folder / "result.json"))


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, limit_s: float = 60.0) -> PartResult:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    part = CommandPart("a part", script(tmp_path, text), limit_s, "result.json", told)
    return module._run(part, tmp_path, limit_s)


WRITES = "import json, sys\nopen(sys.argv[1], 'w').write(json.dumps({'said': 'well'}))\n"


@pytest.mark.parametrize(
    ("text", "outcome", "said"),
    [
        (WRITES, "ok", "well"),
        (WRITES + "print('no plan')\nraise SystemExit(1)", "failed", "status 1: well; no plan"),
        ("import sys\nsys.exit('error: no such kernel')", "failed", "status 1: error: no such kernel"),
    ],
)
def test_a_part_tells_of_what_it_left(
    text: str, outcome: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "result.json").write_text('{"said": "of an earlier contact"}')
    found = run(tmp_path, monkeypatch, text)
    assert (found.outcome, found.found) == (outcome, said)
    assert found.details == ({"said": "well"} if "well" in said else None)


def test_a_part_that_takes_too_long_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(1000)'])"
    found = run(tmp_path, monkeypatch, text, limit_s=0.5)
    assert (found.outcome, found.found) == ("failed", "no end within 0 s: it said nothing")


def test_more_devices_make_more_parts(tmp_path: Path) -> None:
    one, eight = ([part.name for part in parts(facts, tmp_path)] for facts in (ONE, EIGHT))
    assert one == ["environment", "slice", "preflight", "slice of two", "contention"]
    assert eight == [*one, "tensor slice", "pipeline slice"]
    tensor = list(parts(EIGHT, tmp_path))[-2]
    assert tensor.arguments[-2:] == ("--tensor-parallel", "8")


def test_a_part_that_fails_costs_no_other_and_time_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    rows = [
        FeatureResult("products", "ok", "errors: 0", "", 1.0),
        FeatureResult("profiler", "failed", "CUPTI", "no traces", 1.0),
    ]
    monkeypatch.setattr(module, "device_facts", lambda _: ONE)
    monkeypatch.setattr(module, "FEATURES", rows)
    monkeypatch.setattr(module, "try_feature", lambda one, *_: one)
    bad = CommandPart("bad", script(tmp_path, "raise SystemExit('broken')"), 60.0, "result.json", told)
    good = CommandPart("good", ("json.tool", "--help"), 60.0, "", told)
    monkeypatch.setattr(module, "parts", lambda *_: [bad, good])
    output = tmp_path / "out"
    found = first_contact("cuda", output, 10.0)
    assert [(one.name, one.outcome) for one in found.parts] == [
        ("features", "ok"),
        ("bad", "failed"),
        ("good", "failed"),
    ]
    assert found.parts[0].found == "1 of 2 work; failed: profiler (then no traces)"
    assert not found.passed
    written = json.loads((output / "contact.json").read_text())
    assert [part["name"] for part in written["parts"]] == ["features", "bad", "good"]
    assert "status 1: broken" in capsys.readouterr().out
    assert (written["format"], written["passed"], written["device"]) == (1, False, "1 x NVIDIA H200")
    rows.append(FeatureResult("adam", "failed", "no kernel", "", 1.0))
    late = first_contact("cuda", output, 0.01)
    assert late.parts[0].found.endswith("profiler (then no traces), adam (NEEDED)")
    assert late.parts[0].outcome == "failed"
    assert {one.outcome for one in late.parts[1:]} == {"left out"}


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"output .*Not a directory; change --output"):
        first_contact("cpu", tmp_path / "file" / "out", 1.0)
