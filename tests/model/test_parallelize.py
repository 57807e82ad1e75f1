"""What each process gets of the model: which parameters, and how much of each. Nothing is computed."""

import dataclasses
from typing import Any

import pytest
import torch

from benchmark.config.systems import SYSTEMS
from benchmark.planning.dry_runs.fake_world import fake_world
from model.flops import num_parameters
from model.gpt3 import GPT3
from model.gpt3_config import GPT3Config
from model.model_parts import layers_of_pipeline_stages
from model.parallelize import Spread, parallelize, parameters_by_name
from tests.benchmark.tiny import in_processes

SIZES = GPT3Config(
    num_layers=4, hidden_size=64, num_attention_heads=4, seq_length=16, vocab_size=120, padded_vocab_size=128
)
NAMES = {name for name, _ in GPT3(SIZES).named_parameters()}
PLAIN = Spread(bf16=True, recompute="none", compile=False, by_hand=False)
EIGHT = dataclasses.replace(SYSTEMS["cpu_p1"], devices_per_node=8)

Part = dict[str, tuple[tuple[int, ...], int]]
"""Shape of each parameter, and the numbers of it that this process holds."""


def _parts(rank: int, spread: Spread, topology: dict[str, Any]) -> list[Part]:
    with fake_world(dataclasses.replace(EIGHT, **topology), rank) as world:
        return [_part(parameters_by_name([part])) for part in parallelize(SIZES, world.mesh, spread)]


def _part(parameters: dict[str, Any]) -> Part:
    assert all(value.is_meta and value.dtype == torch.float32 for value in parameters.values())
    return {name: (tuple(value.shape), value.to_local().numel()) for name, value in parameters.items()}


def parts(rank: int = 0, spread: Spread = PLAIN, **topology: int) -> list[Part]:
    """Of process ``rank`` of eight, in a process of its own."""
    (found,) = in_processes(1, _parts, rank, spread, topology)
    return list(found)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_one_part_sharded_over_all(recompute: Any) -> None:
    """Names are the plain model's, however blocks are wrapped."""
    (part,) = parts(spread=dataclasses.replace(PLAIN, recompute=recompute))
    assert set(part) == NAMES
    assert sum(held for _, held in part.values()) == num_parameters(SIZES) // 8


def test_replicas_share_no_shards() -> None:
    (part,) = parts(replicas=2)
    assert sum(held for _, held in part.values()) == num_parameters(SIZES) // 4


def test_tensor_parallel_ranks_hold_parts_of_matrices_and_all_of_the_rest() -> None:
    (part,) = parts(tensor_parallel=8)
    assert part["encoder.layers.0.self_attention.query_key_value.weight"] == ((192, 64), 192 * 64 // 8)
    assert part["encoder.layers.0.self_attention.dense.bias"] == ((64,), 64)
    assert part["embedding.word_embeddings.weight"] == ((128, 64), 128 * 64 // 8)
    assert part["embedding.position_embeddings.weight"] == ((2048, 64), 2048 * 64)


@pytest.mark.parametrize(("ranks", "chunks"), [(4, 1), (2, 2)])
def test_pipeline_ranks_have_every_so_many_stages(ranks: int, chunks: int) -> None:
    """The first rank has the first pipeline stage and, interleaved, the one after the last rank's first."""
    spread = dataclasses.replace(PLAIN, chunks=chunks)
    last_rank = 8 // ranks * (ranks - 1)
    first, last = (parts(rank, spread, pipeline_parallel=ranks) for rank in (0, last_rank))
    layers = layers_of_pipeline_stages(SIZES.num_layers, ranks * chunks)
    for pipeline_rank, found in ((0, first), (ranks - 1, last)):
        assert [_layers(part) for part in found] == [set(some) for some in layers[pipeline_rank::ranks]]
    assert "embedding.position_embeddings.weight" in first[0]
    assert "embedding.word_embeddings.weight" in first[0].keys() & last[-1].keys()
    assert "encoder.final_layernorm.weight" in last[-1]


def _layers(part: Part) -> set[int]:
    return {int(name.split(".")[2]) for name in part if name.startswith("encoder.layers.")}
