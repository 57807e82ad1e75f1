"""The parameters' names and shapes are those of the model."""

import torch

from checkpoint_convert.model_sizes.parameters import layer_name, parameter_shapes, parameters
from model.gpt3 import GPT3
from tests.checkpoint_convert.tiny import CONFIG


def test_names_and_shapes_are_the_models() -> None:
    with torch.device("meta"):
        expected = {name: tuple(value.shape) for name, value in GPT3(CONFIG).named_parameters()}
    assert parameter_shapes({"L": 2, "H": 36, "F": 144, "V": 208, "P": 208}) == expected


def test_parameters_of_a_layer_lie_in_one_array() -> None:
    found = parameters(3)
    assert found["encoder.layers.2.mlp.dense_4h_to_h.bias"].megatron == "encoder.layers.mlp.dense_4h_to_h.bias"
    assert layer_name("encoder.layers.mlp.x", 7) == "encoder.layers.7.mlp.x"
    assert len(found) == 4 + 3 * 12
