import json
from pathlib import Path
from typing import Literal

import pytest
import torch

from benchmark.__main__ import main
from benchmark.commands.first_contact_command import FirstContactCommand
from benchmark.preflight.first_contact import first_contact
from benchmark.preflight.first_contact.first_contact import ContactResult, PartResult
from stage.errors import InputError


@pytest.mark.parametrize(("outcome", "status"), [("ok", 0), ("failed", 1)])
def test_the_status_tells_whether_all_works(
    outcome: Literal["ok", "failed"], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = ContactResult("1 x NVIDIA H200", "2.11.0", "now", [PartResult("features", outcome, "said", 1.0)])
    monkeypatch.setattr(first_contact, "first_contact", lambda *_: result)
    assert FirstContactCommand(output=Path("there")).run() == status
    assert capsys.readouterr().out.endswith("all works: there/contact.json\n")
    assert FirstContactCommand(json=True).run() == status
    assert json.loads(capsys.readouterr().out)["passed"] is (status == 0)


@pytest.mark.parametrize("minutes", [0.0, -1.0, float("nan"), 1e9])
def test_minutes_out_of_range_are_refused(minutes: float) -> None:
    with pytest.raises(InputError, match=r"minutes .*: expected more than 0, at most 1,440; change --minutes"):
        FirstContactCommand(minutes=minutes).run()


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_a_machine_without_a_gpu_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="device cuda: PyTorch"):
        main(["preflight", "--first-contact", "--output", str(tmp_path)])
