"""Made-up weights are the same wherever they lie."""

import math

import numpy as np
import numpy.typing as npt

from benchmark.preflight.slice_run.made_up_state import made_up_batches, made_up_state
from benchmark.preflight.slice_run.slice_config import SliceOptions, slice_config
from benchmark.training.engine.adam import local
from benchmark.training.engine.distributed import joined_world, read_environment
from tests.benchmark.tiny import in_processes

Parts = dict[str, npt.NDArray[np.float32]]
WORDS = "embedding.word_embeddings.weight"


def parts(options: SliceOptions) -> tuple[Parts, list[list[int]]]:
    """This process's parts of weights and moments, and the tokens of its first two micro-batches."""
    config = slice_config(options, 2, "")
    with joined_world(config.system, read_environment()) as world:
        tensors = made_up_state(config, world).tensors()
        tokens = [batch.tokens[0, :4].tolist() for batch in made_up_batches(config, world)[:2]]
        return {name: local(tensor).numpy().copy() for name, tensor in tensors.items()}, tokens


def test_copies_are_equal_and_parts_differ() -> None:
    options = SliceOptions("rehearsal", device="cpu", tensor_parallel=2)
    first, second = (found for found, _ in in_processes(2, parts, options))
    cut = "model/encoder.layers.0.mlp.dense_h_to_4h.weight"
    whole = "model/embedding.position_embeddings.weight"
    assert not np.array_equal(first[cut], second[cut])
    assert np.array_equal(first[whole], second[whole])


def test_both_copies_of_the_word_table_are_equal() -> None:
    options = SliceOptions("rehearsal", device="cpu", pipeline_parallel=2)
    (first, tokens), (last, same_tokens) = in_processes(2, parts, options)
    assert np.array_equal(first[f"model/{WORDS}"], last[f"model/{WORDS}"])
    assert tokens == same_tokens
    assert tokens[0] != tokens[1]


def test_weights_are_as_a_model_begins_and_moments_are_zero() -> None:
    ((found, tokens),) = in_processes(1, parts, SliceOptions("rehearsal", device="cpu"))
    block = "model/encoder.layers.1."
    assert math.isclose(found[f"{block}mlp.dense_h_to_4h.weight"].std(), 0.02, rel_tol=0.02)
    assert math.isclose(found[f"{block}mlp.dense_4h_to_h.weight"].std(), 0.01, rel_tol=0.02)  # 2 layers
    assert not found[f"{block}input_layernorm.weight"].any()
    assert not any(value.any() for name, value in found.items() if name.startswith("exp_avg"))
    assert all(0 <= token < 1000 for row in tokens for token in row)
