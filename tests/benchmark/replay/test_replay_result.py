"""What a replay says."""

import dataclasses

from benchmark.evidence.mismatch import Mismatch
from benchmark.replay.replay_result import ReplayResult, format_replay

HOLDS = ReplayResult("run", 208, 224, 208, 16, True, None, (), ("a note",), {"loss": 0.0}, 0.14, 0.15)


def test_a_replay_that_holds() -> None:
    assert format_replay(HOLDS).splitlines() == [
        "run: steps 208 to 224: 16 steps again from the checkpoint after 208 steps, to the bit: every link holds",
        "  a step: 0.14 s recorded, 0.15 s replayed",
        "  note: a note",
    ]


def test_tolerances_and_deviations() -> None:
    deviations = tuple(Mismatch(step, "loss", "1", "2") for step in range(50))
    other = dataclasses.replace(HOLDS, exact=False, why_not_exact="devices was 2, is 1", deviations=deviations, start=0)
    lines = format_replay(other).splitlines()
    assert lines[0] == (
        "run: steps 208 to 224: 16 steps again from the initial checkpoint, with tolerances (devices was 2, is 1): "
        "50 deviations"
    )
    assert lines[1] == "  farthest apart: loss 0"
    assert lines[-1] == "  and 10 more"
    assert not other.holds
    data = dataclasses.replace(HOLDS, start=None, exact=False, replayed_step_s=None)
    assert format_replay(data).startswith(
        "run: steps 208 to 224: samples, tokens and learning rates of 16 steps: every"
    )
