"""The table of drills holds together."""

import re

import pytest

from benchmark.drills.catalogue.drill import Drill
from benchmark.drills.catalogue.drill_table import DRILLS
from benchmark.drills.faults import Fault
from benchmark.drills.injector import CALL
from benchmark.drills.practice import LAYOUTS
from benchmark.drills.seams import SEAMS
from benchmark.supervision.phases import PHASES
from tests.support import REPOSITORY

WITHOUT_FAULT = {"bad-input", "time-limit", "damaged-data", "flipped-data"}
"""Their options or their files are what is wrong."""


@pytest.mark.parametrize("drill", DRILLS.values(), ids=lambda drill: drill.name)
def test_a_drill_can_be_run(drill: Drill) -> None:
    assert drill.layout in LAYOUTS
    for fault in drill.faults:
        assert (
            fault.at in PHASES
            or fault.at.removeprefix(CALL) in SEAMS
            or (drill.start, fault.at) == ("torchrun", "outside")
        )
        assert -1 <= fault.steps[0] <= fault.steps[1] < drill.steps
    assert drill.faults or drill.name in WITHOUT_FAULT
    for words in drill.words:
        re.compile(words)
    if drill.outcome == "stopped":
        assert drill.words, "it must end with the right words"


def test_faults_of_a_drill_can_be_told_apart() -> None:
    for drill in DRILLS.values():
        faults = [fault for fault in drill.faults if isinstance(fault, Fault)]
        assert len(set(faults)) == len(faults)


def test_every_drill_is_in_the_manual() -> None:
    page = (REPOSITORY / "docs" / "drills.md").read_text()
    assert [name for name in DRILLS if f"`{name}`" not in page] == []
    for drill in DRILLS.values():
        assert drill.covers.partition(":")[0] in page
