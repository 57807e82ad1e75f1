"""Which published steps are of devices nearly full of weights, and whether the interval holds them."""

import dataclasses

from benchmark.planning.backtesting.fit_constants import comparable, topology_guessed
from benchmark.planning.backtesting.published_table import load_published_results
from benchmark.planning.step_model.machine_constants import committed_constants
from benchmark.planning.step_model.nearly_full import nearly_full, widened
from benchmark.planning.step_model.step_interval import predict_step
from tests.benchmark.planning.step_model.works import gpt3_work

FULL = {
    *(f"foundry-a100-40-bf16-13b-s{seq}-8" for seq in (512, 1024, 2048, 4096, 8192)),
    *("foundry-a100-80-bf16-30b-s8192-8", "foundry-h100-bf16-30b-s8192-8", "mosaic-30b-s8192-8"),
}


def test_those_that_were_slower_than_predicted_and_no_others() -> None:
    constants = committed_constants()
    sharp = [each for each in comparable(load_published_results()) if not topology_guessed(each.result)]
    found = {each.result.id: each for each in sharp if nearly_full(each.work)}
    assert found.keys() == FULL
    for each in found.values():
        measured, plain = each.result.step_s, predict_step(each.work, constants)
        wide = widened(plain, each.work)
        assert plain.step_s < 0.91 * measured
        assert wide.low_s == plain.low_s <= measured <= wide.high_s


def test_other_steps_keep_their_interval() -> None:
    step = predict_step(gpt3_work(), committed_constants())
    assert widened(step, gpt3_work()) is step
    unknown = dataclasses.replace(gpt3_work(), accelerator="H100 500 W")
    assert not nearly_full(unknown)
