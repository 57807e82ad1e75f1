from pathlib import Path

import pytest
import torch

from benchmark.slice_run.first_contact.kernel_features import FeatureWrong
from benchmark.slice_run.first_contact.training_match import Precision, TrainedSteps, compared, train_both
from tests.benchmark.tiny import in_processes


def trained(folder: Path, precision: Precision) -> str:
    return train_both(torch.device("cpu"), precision, folder)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_same_steps_are_the_same_and_a_checkpoint_is_whole(precision: str, tmp_path: Path) -> None:
    (found,) = in_processes(1, trained, tmp_path, precision)
    assert found == "4 steps, losses within 0, norms within 0 of the CPU's; saved and loaded to the bit"


DUE = TrainedSteps([6.9, 6.8, 6.7, 6.6], [3.0, 2.0, 2.0, 1.0])


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
        compared(TrainedSteps(losses, norms), DUE, "fp32")
