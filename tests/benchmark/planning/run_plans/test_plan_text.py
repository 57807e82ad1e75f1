"""Every part of a step has a name for people."""

import dataclasses

from benchmark.planning.plan_printing.plan_text import PART_NAMES
from benchmark.planning.step_model.simulated_step import StepParts


def test_every_part_has_a_name() -> None:
    assert list(PART_NAMES) == [field.name for field in dataclasses.fields(StepParts)]
    assert len(set(PART_NAMES.values())) == len(PART_NAMES)
