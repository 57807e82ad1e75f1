"""Loading: each process reads its own part of a checkpoint and little else, whatever the slices are."""

import shutil
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
import torch

from checkpoint_convert.formats import stored_array
from checkpoint_convert.formats.array_table import EXP_AVG, EXP_AVG_SQ, MASTER_WEIGHTS, WEIGHTS
from checkpoint_convert.formats.boxes import whole_box
from checkpoint_convert.formats.megatron_checkpoint import MegatronCheckpoint
from checkpoint_convert.formats.stored_array import Values
from checkpoint_convert.formats.zarr_arrays import create_array
from foundation.errors import InputError
from tests.checkpoint_convert.tiny import read

HIDDEN = 512
EMBEDDING = "embedding.word_embeddings.weight"
QKV = "encoder.layers.1.self_attention.query_key_value.weight"
BIAS = "encoder.layers.1.mlp.dense_h_to_4h.bias"
STORED = {
    EMBEDDING: (EMBEDDING, (2 * HIDDEN, HIDDEN)),
    QKV: (QKV.replace("1.", "", 1), (2, 3 * HIDDEN, HIDDEN)),
    BIAS: (BIAS.replace("1.", "", 1), (2, 4 * HIDDEN)),
}
"""Name and shape of the array that holds a parameter."""


def _values(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Arrays of consecutive numbers, in chunks of eighths as the benchmark's."""
    folder = tmp_path_factory.mktemp("load")
    (folder / "metadata.json").write_text("{}")
    for array, shape in STORED.values():
        chunks = [1 if size == 2 else size // 8 for size in shape]
        create_array(folder / (WEIGHTS + array), shape, "float32", chunks).write(_values(shape)).result()
    return folder


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each read of a chunk file; the benchmark's rows are 24 times as wide."""
    monkeypatch.setattr(stored_array, "SHORTEST_READ", 512 // 24)
    read, counts = stored_array._read_exactly, list[int]()

    def counted(file: BinaryIO, offset: int, values: Values) -> None:
        counts.append(values.nbytes)
        read(file, offset, values)

    monkeypatch.setattr(stored_array, "_read_exactly", counted)
    return counts


@pytest.mark.parametrize("world", [1, 3, 64])
@pytest.mark.parametrize(("name", "axis"), [(EMBEDDING, 0), (QKV, 0), (BIAS, 0), (EMBEDDING, 1), (QKV, 1)])
def test_a_rank_reads_little_more_than_its_share(
    name: str, axis: int, world: int, checkpoint: Path, bytes_read: list[int]
) -> None:
    """Shares are equal parts, rounded up; the last ones may be shorter or empty."""
    array, stored_shape = STORED[name]
    whole = _values(stored_shape) if array == name else _values(stored_shape)[1]
    length = -(-whole.shape[axis] // world)
    for rank in sorted({0, world // 2, world - 1}):
        box = list(whole_box(whole.shape))
        box[axis] = slice(*(min(start, whole.shape[axis]) for start in (rank * length, (rank + 1) * length)))
        found = MegatronCheckpoint(checkpoint).read(WEIGHTS, name, whole.shape, tuple(box))
        np.testing.assert_array_equal(found, whole[tuple(box)])
        assert found.nbytes <= sum(bytes_read) <= 1.2 * found.nbytes
        bytes_read.clear()


def test_loading_reads_master_weights_and_moments(megatron: dict[str, Path]) -> None:
    checkpoint = MegatronCheckpoint(megatron["bf16"])
    name, array = "encoder.layers.1.mlp.dense_h_to_4h.weight", "encoder.layers.mlp.dense_h_to_4h.weight"
    weight, exp_avg, exp_avg_sq = torch.zeros(144, 36), torch.zeros(144, 36), torch.zeros(144, 36)
    checkpoint.load_weights({name: weight})
    checkpoint.load_moments({name: exp_avg}, {name: exp_avg_sq})
    np.testing.assert_array_equal(weight.numpy(), read(megatron["bf16"] / (MASTER_WEIGHTS + array))[1])
    np.testing.assert_array_equal(exp_avg.numpy(), read(megatron["bf16"] / (EXP_AVG + array))[1])
    assert (exp_avg_sq >= 0).all()


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("embedding.word_embeddings.weight", (240, 36)),  # more rows than stored
        ("embedding.word_embeddings.weight", (104, 36)),  # fewer rows: silently truncated by the reference
        ("encoder.layers.2.input_layernorm.bias", (36,)),  # no third layer
        ("encoder.layers.0.input_layernorm.bias", (72,)),
    ],
)
def test_loading_into_another_model_is_refused(name: str, shape: tuple[int, ...], megatron: dict[str, Path]) -> None:
    with pytest.raises(InputError, match="the checkpoint belongs to another model"):
        MegatronCheckpoint(megatron["bf16"]).load_weights({name: torch.zeros(shape)})


def test_loading_without_some_chunk_is_refused(megatron: dict[str, Path], tmp_path: Path) -> None:
    """Weights and moments alike: zeros in their place would not show at the gate."""
    shutil.copytree(megatron["bf16"], tmp_path / "copy")
    name = "encoder.final_layernorm.weight"
    checkpoint = MegatronCheckpoint(tmp_path / "copy")
    for number, prefix in enumerate((MASTER_WEIGHTS, EXP_AVG, EXP_AVG_SQ)):
        chunk = min(path for path in (tmp_path / "copy" / (prefix + name)).iterdir() if path.name[0].isdigit())
        data = chunk.read_bytes()
        chunk.unlink()
        targets = [{name: torch.ones(36)} if each == number else {} for each in range(3)]
        with pytest.raises(InputError, match=rf"{name}: chunk {chunk.name} is missing"):
            checkpoint.load_weights(targets[0])
            checkpoint.load_moments(targets[1], targets[2])
        chunk.write_bytes(data)
