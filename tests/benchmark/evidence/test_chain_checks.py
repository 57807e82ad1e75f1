"""What a chain must say in itself. Forged chains of real runs: tests/benchmark/replay/test_replay_run.py."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from benchmark.config.schedule import learning_rate
from benchmark.evidence.chain_checks import MOST_TOLD, chain_deviations
from benchmark.evidence.chain_links import EVIDENCE, read_chain
from benchmark.evidence.link_contents import CheckpointLink, Content, EndLink, EvaluationLink, ResumeLink, StepLink
from benchmark.evidence.tensor_prints import PRINT, as_text
from tests.benchmark.evidence.test_chain_links import BEGIN, MACHINERY, STATE, step, write
from tests.benchmark.tiny import TINY


def prints(number: int) -> str:
    """Of one tensor."""
    return as_text(np.array([number], np.uint64), PRINT)


def due(number: int, skipped: int = 0) -> StepLink:
    """A step of the tiny benchmark, an evaluation every four."""
    before = 48000 + 12 * (number - 1)
    rate = learning_rate(before - 12 * skipped, TINY.optimizer)
    batch = f"{number:016x}"
    return dataclasses.replace(
        step(number), first_sample=before, learning_rate=rate, samples=batch, tokens=batch, weights=prints(number)
    )


AFTER_3 = dataclasses.replace(STATE, weights=prints(3), exp_avg=prints(33), exp_avg_sq=prints(333))
HONEST: list[Content] = [
    BEGIN,
    due(1),
    dataclasses.replace(due(2), skipped=True, grad_norm=math.inf, weights=prints(1)),
    due(3, skipped=1),
    CheckpointLink(3, 1003, AFTER_3),
    ResumeLink(3, 1003, MACHINERY, AFTER_3),
    due(4, skipped=1),
    EvaluationLink(4, 1004, 2.75, 100),
    EndLink(4, 1005, "success", "0" * 64),
]


def told(contents: list[Content], tmp_path: Path, *, went_back: bool = False) -> list[str]:
    write(tmp_path / EVIDENCE, contents)
    return [one.line() for one in chain_deviations(read_chain(tmp_path / EVIDENCE), TINY, went_back=went_back)]


def test_an_honest_chain(tmp_path: Path) -> None:
    assert told(HONEST, tmp_path) == []
    assert told(HONEST[:4], tmp_path) == []


OTHER = dataclasses.replace(AFTER_3, weights=prints(9))


@pytest.mark.parametrize(
    ("place", "content", "expected"),
    [
        (3, due(3), "step 3: learning rate: recorded 0.00099858385"),
        (3, dataclasses.replace(due(3, 1), first_sample=0), "step 3: first sample: recorded 0, found 48024 is due"),
        (3, due(5, 1), "step 5: number of the step: recorded 5, found 3 is due"),
        (
            4,
            CheckpointLink(2, 1003, STATE),
            "step 2: place of the checkpoint: recorded after 2 steps, found 3 step",
        ),
        (4, CheckpointLink(3, 1003, OTHER), "step 3: weights of the checkpoint: recorded others, found than the step"),
        (5, ResumeLink(3, 1003, MACHINERY, OTHER), "step 3: weights of the state gone on from: recorded others"),
        (
            5,
            ResumeLink(3, 1002, MACHINERY, AFTER_3),
            "step 3: time: recorded 1002 ms, found 1003 ms on the link before",
        ),
        (7, CheckpointLink(4, 1004, STATE), "step 4: evaluation: recorded none, found due every 4 steps"),
        (7, EndLink(4, 1004, "success", ""), "step 4: the end: recorded line 8, found 1 links behind"),
        (4, BEGIN, "step 0: a second beginning: recorded line 5, found one, on line 1"),
        (0, dataclasses.replace(BEGIN, version=2), "the chain's form: recorded 2, found 1, which this code can check"),
        (0, dataclasses.replace(BEGIN, names=("a", "b")), "tensors: recorded 2 names, found 1 sizes"),
    ],
)
def test_what_does_not_follow(place: int, content: Content, expected: str, tmp_path: Path) -> None:
    said = told([*HONEST[:place], content, *HONEST[place + 1 :]], tmp_path)
    assert any(line.startswith(expected) for line in said), said


def test_a_chain_that_begins_later_or_not_at_all(tmp_path: Path) -> None:
    later: list[Content] = [dataclasses.replace(BEGIN, step=2, time_ms=1002), *HONEST[3:]]
    assert told(later, tmp_path) == []  # a gap: test_chain_coverage.py
    (tmp_path / EVIDENCE).write_bytes(b"")
    assert [one.what for one in chain_deviations(read_chain(tmp_path / EVIDENCE), TINY)] == ["the chain"]


def test_ways_back_move_samples_and_rates(tmp_path: Path) -> None:
    moved: list[Content] = [HONEST[0], dataclasses.replace(due(1), first_sample=1, learning_rate=1.0)]
    assert len(told(moved, tmp_path)) == 2  # of the schedule
    assert told(moved, tmp_path, went_back=True) == []


def test_numbers_of_steps_take_no_time(tmp_path: Path) -> None:
    """A link of step 10^18 is one mismatch of its number, not an evaluation due for each step before."""
    assert len(told([BEGIN, due(1), dataclasses.replace(step(10**18), first_sample=0)], tmp_path)) < 6


def test_many_of_a_kind_are_counted(tmp_path: Path) -> None:
    many: list[Content] = [BEGIN, *(dataclasses.replace(due(number), first_sample=0) for number in range(1, 31))]
    said = [line for line in told(many, tmp_path) if "first sample" in line]
    assert len(said) == MOST_TOLD + 1
    assert said[-1] == "first sample, likewise: recorded 22 more, found as before"
