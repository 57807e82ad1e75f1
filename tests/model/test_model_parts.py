"""The parts of a pipeline: every layer in one of them. What passes through them: passes/test_part_pass.py."""

import copy
import itertools

import pytest

from model.gpt3 import GPT3
from model.gpt3_config import GPT3Config
from model.model_parts import ModelPart, layers_of_pipeline_stages

SIZES = GPT3Config(
    num_layers=5, hidden_size=32, num_attention_heads=4, seq_length=16, vocab_size=60, padded_vocab_size=64
)
TABLE = "embedding.word_embeddings.weight"


@pytest.mark.parametrize(("layers", "stages"), [(96, 8), (4, 3), (5, 5), (7, 2), (96, 1)])
def test_every_layer_is_in_one_stage_and_the_first_have_what_is_left(layers: int, stages: int) -> None:
    parts = layers_of_pipeline_stages(layers, stages)
    assert [layer for part in parts for layer in part] == list(range(layers))
    sizes = [len(part) for part in parts]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] - sizes[-1] <= 1


def test_parameters_keep_their_names_and_only_the_table_is_there_twice() -> None:
    whole = GPT3(SIZES)
    names = {name for name, _ in whole.named_parameters()}
    parts = [ModelPart(copy.deepcopy(whole), number, 3) for number in range(3)]
    by_part = [{name for name, _ in part.named_parameters()} for part in parts]
    assert set.union(*by_part) == names
    shared = [one & other for one, other in itertools.combinations(by_part, 2)]
    assert shared == [set(), {TABLE}, set()]
    assert "embedding.position_embeddings.weight" in by_part[0]
    assert "encoder.final_layernorm.weight" in by_part[2]
