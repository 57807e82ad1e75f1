"""What-ifs."""

from benchmark.planning.step_model.machine_constants import committed_constants, values_of
from benchmark.planning.step_model.simulated_step import simulate_step
from benchmark.planning.step_model.what_if import IDEAS, apply_what_if
from tests.benchmark.planning.step_model.works import VALUES, gpt3_work


def step_s(*words: str) -> float:
    work, constants = apply_what_if(words, gpt3_work("ours"), committed_constants())
    return simulate_step(work, values_of(constants)).total


def test_ideas_make_no_step_longer() -> None:
    plain = simulate_step(gpt3_work("ours"), VALUES).total
    assert all(step_s(word) <= plain for word in IDEAS)
    assert step_s("matmul=2x") < 0.65 * plain
    assert step_s("tp-overlap=off") > plain
    assert step_s("network=0.1x", "nvlink=0.5x") > plain
    assert step_s() == plain
