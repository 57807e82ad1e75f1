"""A benchmark that evaluates the first windows of its validation set evaluates just those."""

import dataclasses

import numpy as np
import pytest

from benchmark.config.run_sections import DataOptions
from benchmark.training.inputs import open_validation
from data_prep.sample_order.token_windows import open_token_windows
from stage.errors import InputError
from tests.benchmark.llama import TINY_LLAMA
from tests.benchmark.tiny import Inputs


@pytest.mark.parametrize("seed", [1, 2])
def test_they_are_the_first_of_the_file_in_its_order(seed: int, inputs: Inputs) -> None:
    prefix = inputs.validation[-1]
    everything = open_token_windows([prefix], sequence_length=10**4, num_samples=-1, seed=1).window(0)
    for path in ((prefix,), inputs.validation):
        windows = open_validation(DataOptions(valid_data_path=path), TINY_LLAMA, seed)
        assert len(windows) == 10
        for number in range(10):
            assert np.array_equal(windows.window(number), everything[16 * number : 16 * number + 17])
    assert "tokens" in windows.documents(0)


def test_too_few_are_refused(inputs: Inputs) -> None:
    many = dataclasses.replace(TINY_LLAMA, evaluation_sequences=999)
    with pytest.raises(InputError, match="sequences of 16 tokens, but 999 are evaluated; give a larger set"):
        open_validation(DataOptions(valid_data_path=inputs.validation), many, 1)


def test_several_datasets_have_no_first_sequences(inputs: Inputs) -> None:
    with pytest.raises(InputError, match="2 datasets, but the first 10 sequences of one are evaluated"):
        open_validation(DataOptions(valid_data_path=inputs.training), TINY_LLAMA, 1)
