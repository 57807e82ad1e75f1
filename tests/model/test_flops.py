"""FLOPs and parameters by formula."""

import pytest
import torch

from model.flops import num_parameters, part_flops_per_token, train_flops_per_token
from model.gpt3 import GPT3
from model.gpt3_config import GPT3Config

BENCHMARK = GPT3Config(96, 12288, 96, 2048, 50257, 51200)


def test_sizes_of_the_benchmark() -> None:
    assert num_parameters(BENCHMARK) == 174_615_846_912
    assert train_flops_per_token(BENCHMARK) == pytest.approx(1.0764e12, rel=1e-4)
    with torch.device("meta"):
        assert sum(parameter.numel() for parameter in GPT3(BENCHMARK).parameters()) == num_parameters(BENCHMARK)


def test_parts_add_up_to_the_whole() -> None:
    layers = [part_flops_per_token(BENCHMARK, num_layers=number, output_columns=0) for number in (0, 90, 6)]
    output = part_flops_per_token(BENCHMARK, num_layers=0, output_columns=50257)
    assert layers[0] == 0
    assert sum(layers) + output == pytest.approx(train_flops_per_token(BENCHMARK), rel=1e-14)
    assert output == 6 * 50257 * 12288  # forward 2, backward 4 per weight and token
