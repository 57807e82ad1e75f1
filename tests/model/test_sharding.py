"""What each process gets of the model: which parameters, and how much of each. Nothing is computed."""

import dataclasses
import itertools

import pytest
import torch
from torch.distributed.tensor.debug import _clear_sharding_prop_cache

from benchmark.config.systems import SYSTEMS
from benchmark.planning.fake_device.fake_world import fake_world
from model.architectures import architecture_of
from model.gpt3 import GPT3
from model.gpt3_config import GPT3Config
from model.sharding import empty_chunks, layers_of_chunks, names_of_chunk
from tests.benchmark.tiny import in_processes

SIZES = GPT3Config(
    num_layers=4, hidden_size=64, num_attention_heads=4, seq_length=16, vocab_size=120, padded_vocab_size=128
)
ARCHITECTURE = architecture_of(SIZES)
WORDS = ARCHITECTURE.words
NAMES = {name for name, _ in GPT3(SIZES).named_parameters()}
EIGHT = dataclasses.replace(SYSTEMS["cpu_p1"], devices_per_node=8)

Chunk = dict[str, tuple[tuple[int, ...], int]]
"""Shape of each parameter, and the numbers of it that this process holds."""


def _chunks(rank: int = 0, **topology: int) -> list[Chunk]:
    """Of process ``rank`` of eight."""
    _clear_sharding_prop_cache()  # type: ignore[no-untyped-call] # as in tests/model/passes/on_mesh.py
    system = dataclasses.replace(EIGHT, **topology)  # type: ignore[arg-type]
    with fake_world(system, rank) as world:
        results = empty_chunks(SIZES, world.mesh, system.pipeline_chunks)
        assert all(value.dtype == torch.float32 for chunk in results for value in chunk.values())
        return [{name: (tuple(one.shape), one.to_local().numel()) for name, one in chunk.items()} for chunk in results]


def _in_every_topology() -> None:
    """In a process of its own: others may have a world open."""
    (shards,) = _chunks()
    assert set(shards) == NAMES
    assert sum(held for _, held in shards.values()) == SIZES.num_parameters // 8
    (with_replicas,) = _chunks(replicas=2)  # which share no shards
    assert sum(held for _, held in with_replicas.values()) == SIZES.num_parameters // 4
    (tensor,) = _chunks(tensor_parallel=8)
    assert tensor["encoder.layers.0.self_attention.query_key_value.weight"] == ((192, 64), 192 * 64 // 8)
    assert tensor["encoder.layers.0.self_attention.dense.weight"] == ((64, 64), 64 * 64 // 8)
    assert tensor["encoder.layers.0.self_attention.dense.bias"] == ((64,), 64)
    assert tensor["encoder.layers.3.mlp.dense_h_to_4h.bias"] == ((256,), 256 // 8)
    assert tensor["embedding.word_embeddings.weight"] == ((128, 64), 128 * 64 // 8)
    assert tensor["embedding.position_embeddings.weight"] == ((2048, 64), 2048 * 64)
    for ranks, per_rank in ((4, 1), (2, 2)):  # a rank has every so many stages
        layers = layers_of_chunks(SIZES.num_layers, ranks * per_rank)
        for rank in (0, ranks - 1):
            results = _chunks(8 // ranks * rank, pipeline_parallel=ranks, pipeline_chunks=per_rank)
            assert [_layers(chunk) for chunk in results] == [set(some) for some in layers[rank::ranks]]
            assert WORDS in results[0 if rank == 0 else -1]


def test_what_a_process_holds_in_every_topology() -> None:
    in_processes(1, _in_every_topology)


def _layers(chunk: Chunk) -> set[int]:
    return {int(name.split(".")[2]) for name in chunk if name.startswith("encoder.layers.")}


@pytest.mark.parametrize(("layers", "stages"), [(96, 8), (4, 3), (5, 5), (7, 2), (96, 1)])
def test_every_layer_is_in_one_stage_and_the_first_have_what_is_left(layers: int, stages: int) -> None:
    dealt = layers_of_chunks(layers, stages)
    assert [layer for stage in dealt for layer in stage] == list(range(layers))
    sizes = [len(stage) for stage in dealt]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] - sizes[-1] <= 1


def test_every_parameter_is_in_one_stage_and_only_the_table_in_two() -> None:
    by_stage = [set(names_of_chunk(sorted(NAMES), ARCHITECTURE, SIZES.num_layers, stage, 3)) for stage in range(3)]
    assert set.union(*by_stage) == NAMES
    assert [one & other for one, other in itertools.combinations(by_stage, 2)] == [set(), {WORDS}, set()]
    assert "embedding.position_embeddings.weight" in by_stage[0]
    assert {"encoder.final_layernorm.weight", "encoder.final_layernorm.bias"} <= by_stage[2]
