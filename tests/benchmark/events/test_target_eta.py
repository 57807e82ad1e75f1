"""What a run says about when it will meet its target."""

import dataclasses
from typing import Any

from benchmark.config.benchmarks import REHEARSAL
from benchmark.config.reference_curves import REFERENCE_CURVES
from benchmark.events.target_eta import TargetEta
from tests.benchmark.events.recorder import event

TOKENS = REHEARSAL.tokens_per_step
CURVE = REFERENCE_CURVES["rehearsal"][0].log_perplexities


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def step(eta: TargetEta, number: int, step_s: float = 2.0) -> dict[str, Any] | None:
    found = eta.follow(event("step", trained_tokens=number * TOKENS, step_s=step_s))
    return None if found is None else dict(found[1])


def evaluation(eta: TargetEta, number: int, value: float, seconds: float = 10.0) -> dict[str, Any] | None:
    fields = {"trained_tokens": number * 16 * TOKENS, "log_perplexity": value, "seconds": seconds, "target": 2.44}
    found = eta.follow(event("evaluation", **fields))
    assert found is None or found[0] == "eta"
    return None if found is None else dict(found[1])


def test_seconds_are_those_of_steps_evaluations_and_pauses() -> None:
    eta = TargetEta(REHEARSAL, [], clock=Clock())
    for number in range(1, 17):
        step(eta, number, step_s=20.0 if number == 1 else 2.0)  # the first is no measure
    eta.follow(event("checkpoint", steps=16, seconds=6.0))
    eta.follow(event("audit", steps=16, seconds=2.0))
    found = evaluation(eta, 1, CURVE[0])
    assert found is not None
    assert found["after"] == "evaluation"
    assert found["target_tokens"] == 13 * 16 * TOKENS
    assert found["target_tokens_low"] <= found["target_tokens"] <= found["target_tokens_high"]
    assert found["step_s"] == 2.0
    assert found["seconds"] == 12 * 16 * (2.0 + 8.0 / 16) + 12 * 10.0
    assert found["seconds_low"] < found["seconds"] < found["seconds_high"]
    assert (found["basis"], found["reaches_target"]) == ("reference curves", True)


def test_between_evaluations_it_is_said_every_few_minutes_from_the_third_step_on() -> None:
    clock = Clock()
    eta = TargetEta(REHEARSAL, [], clock=clock)
    said = []
    for number in range(1, 12):
        clock.now_s += 50.0
        if step(eta, number) is not None:
            said.append(number)
    assert said == [3, 7, 11]


def test_a_restart_knows_the_evaluations_before_it() -> None:
    seen = [(number * 16 * TOKENS, value + 0.2) for number, value in enumerate(CURVE[:6], 1)]
    found = {}
    for name, known in (("continued", seen), ("fresh", [])):
        eta = TargetEta(REHEARSAL, known, clock=Clock())
        found[name] = [step(eta, number) for number in (97, 98, 99)][-1]
    assert found["continued"] is not None
    assert found["fresh"] is not None
    assert found["continued"]["target_tokens"] > found["fresh"]["target_tokens"]


def test_nothing_is_said_once_the_target_is_met_or_training_at_its_end() -> None:
    eta = TargetEta(REHEARSAL, [], clock=Clock())
    for number in range(1, 4):
        step(eta, number)
    assert evaluation(eta, 13, 2.43) is None
    last = REHEARSAL.last_iteration - REHEARSAL.start_iteration
    assert TargetEta(REHEARSAL, [], clock=Clock()).follow(event("message", "x")) is None
    ended = TargetEta(REHEARSAL, [], clock=Clock())
    assert [step(ended, last) for _ in range(4)] == [None] * 4


def test_a_target_beyond_the_end_of_training_is_not_promised() -> None:
    short = dataclasses.replace(REHEARSAL, train_samples=4050 * 16)
    eta = TargetEta(short, [], clock=Clock())
    found = [step(eta, number) for number in (1, 2, 3)][-1]
    assert found is not None
    assert found["reaches_target"] is False
    assert found["target_tokens"] == found["target_tokens_high"] == 50 * TOKENS


def test_without_a_target_it_is_the_end_of_training() -> None:
    endless = dataclasses.replace(REHEARSAL, target_log_perplexity=None, train_samples=4050 * 16)
    eta = TargetEta(endless, [], clock=Clock())
    found = [step(eta, number) for number in (1, 2, 3)][-1]
    assert found is not None
    assert (found["basis"], found["seconds"]) == ("end of training", 47 * 2.0)
