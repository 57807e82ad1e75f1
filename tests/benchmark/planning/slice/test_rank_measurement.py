"""One process's part of a slice, on CPUs: made-up weights that are the same wherever they lie, and what is measured."""

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from benchmark.planning.slice.made_up_state import made_up_batches, made_up_state
from benchmark.planning.slice.rank_measurement import RankMeasurement, SlicePlan, measure, read_measurements
from benchmark.planning.slice.slice_config import SliceOptions, slice_config
from benchmark.training.engine.adam import local
from benchmark.training.engine.distributed import joined_world
from benchmark.training.engine.rank_environment import read_environment
from tests.benchmark.tiny import in_processes

Parts = dict[str, npt.NDArray[np.float32]]
WORDS = "model/embedding.word_embeddings.weight"


def made_up(options: SliceOptions, folder: Path | None) -> tuple[Parts, list[list[int]], RankMeasurement | None]:
    """This process's weights and moments, the tokens of its first two micro-batches, and measurements."""
    config = slice_config(options, 2, "")
    with joined_world(config.system, read_environment()) as world:
        tensors = made_up_state(config.benchmark, config.system, config.precision, world).tensors()
        parts = {name: local(tensor).numpy().copy() for name, tensor in tensors.items()}
        tokens = [batch.tokens[0, :4].tolist() for batch in made_up_batches(config.benchmark, config.system, world)[:2]]
        plan = SlicePlan(config.benchmark, config.system, config.precision, options.steps)
        measured = measure(plan, world, folder, folder / "trace.json") if folder else None
        return parts, tokens, measured


def test_weights_are_as_a_model_begins_and_moments_are_zero() -> None:
    options = SliceOptions("rehearsal", device="cpu", tensor_parallel=2)
    (found, tokens, _), (second, *_) = in_processes(2, made_up, options, None)
    block = "model/encoder.layers.1."
    assert math.isclose(found[f"{block}mlp.dense_h_to_4h.weight"].std(), 0.02, rel_tol=0.02)
    assert math.isclose(found[f"{block}mlp.dense_4h_to_h.weight"].std(), 0.01, rel_tol=0.02)  # 2 layers
    assert not found[f"{block}input_layernorm.weight"].any()
    assert not any(value.any() for name, value in found.items() if name.startswith("exp_avg"))
    assert all(0 <= token < 1000 for row in tokens for token in row)
    cut, whole = f"{block}mlp.dense_h_to_4h.weight", "model/embedding.position_embeddings.weight"
    assert not np.array_equal(found[cut], second[cut])
    assert np.array_equal(found[whole], second[whole])


@pytest.mark.slow
def test_two_processes_measure_the_step_that_trains(tmp_path: Path) -> None:
    options = SliceOptions(
        "rehearsal", pipeline_parallel=2, device="cpu", steps=2, micro_batches=2, seq_length=32, hidden_size=64
    )
    (begun, tokens, first), (ended, same_tokens, second) = in_processes(2, made_up, options, tmp_path)
    assert np.array_equal(begun[WORDS], ended[WORDS])  # both copies of the word table
    assert tokens == same_tokens and tokens[0] != tokens[1]
    assert read_measurements(tmp_path, 2) == [first, second]
    assert first.losses == second.losses
    assert first.losses[-1] < first.losses[0] < 7.1  # the logarithm of 1,000 is 6.9; these weights are small
    assert (len(first.losses), len(first.steps_s)) == (4, 2)
    assert (first.skipped, first.readings, first.reserved_bytes) == (0, (), None)
    assert first.times is not None and "communication" in first.times.by_kind_s
    assert first.rates is not None and second.rates is None
    assert first.collectives == second.collectives
    assert (tmp_path / "trace.json").is_file()
