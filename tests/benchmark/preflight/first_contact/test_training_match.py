"""Training on a device against a CPU."""

from collections.abc import Callable

import pytest
import torch

from benchmark.preflight.first_contact.kernel_features import FeatureWrong
from benchmark.preflight.first_contact.training_match import (
    TrainedSteps,
    compared,
    training_in_bf16,
    training_in_fp32,
)
from tests.benchmark.tiny import in_processes


@pytest.mark.slow
@pytest.mark.parametrize("tried", [training_in_fp32, training_in_bf16])
def test_the_same_steps_are_the_same_and_a_checkpoint_is_whole(tried: Callable[[torch.device], str]) -> None:
    (found,) = in_processes(1, tried, torch.device("cpu"))
    same = "4 steps, losses within 0, norms within 0 of the CPU's"
    assert found == f"rehearsal: {same}; rehearsal_llama: {same}; saved and loaded to the bit"


DUE = TrainedSteps([6.9, 6.8, 6.7, 6.6], [3.0, 2.0, 2.0, 1.0], {})


@pytest.mark.parametrize(
    ("losses", "norms", "said"),
    [
        ([6.9, 6.8, 6.7, 6.603], DUE.norms, "losses of 4 steps are off by 0.00045"),
        (DUE.losses, [3.0, 2.0, 2.0, 1.01], "norms of 4 steps are off by 0.01"),
        ([6.9, 6.8, 6.7, float("nan")], DUE.norms, "losses of 4 steps are off by nan"),
        ([float("nan"), 6.8, 6.7, 6.6], DUE.norms, "losses of 4 steps are off by nan"),
    ],
)
def test_steps_that_are_a_little_wrong_are_found(losses: list[float], norms: list[float], said: str) -> None:
    with pytest.raises(FeatureWrong, match=said):
        compared(TrainedSteps(losses, norms, {}), DUE, "fp32")
