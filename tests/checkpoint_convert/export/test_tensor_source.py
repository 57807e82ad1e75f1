"""A checkpoint as Megatron's arrays, out of a converted checkpoint and out of a run's own."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from checkpoint_convert.export.tensor_source import MODEL, MOMENTS, TensorSource
from checkpoint_convert.formats.array_table import ARRAYS, EXP_AVG_SQ, MASTER_WEIGHTS
from checkpoint_convert.formats.boxes import whole_box
from checkpoint_convert.formats.distributed_checkpoint import dcp_arrays
from stage.errors import InputError
from tests.checkpoint_convert.checkpoints import write_dcp
from tests.checkpoint_convert.tiny import AXES, parameter_shapes, read

ARRAY = next(array for array in ARRAYS if array.megatron.endswith("dense_h_to_4h.weight"))


def test_both_formats_have_the_tables_arrays(megatron: dict[str, Path], trained: Path) -> None:
    expected = {array: array.megatron_shape(AXES) for array in ARRAYS}
    for source in map(TensorSource, (megatron["bf16"], trained)):
        for group in (MODEL, *MOMENTS):
            assert {array: stored.shape for array, stored in source.arrays(group).items()} == expected


def test_values_of_a_converted_checkpoint(megatron: dict[str, Path]) -> None:
    source = TensorSource(megatron["bf16"])
    for group, prefix in ((MODEL, MASTER_WEIGHTS), ("exp_avg_sq", EXP_AVG_SQ)):
        found = source.read(group, ARRAY, whole_box((2, 144, 36)))
        np.testing.assert_array_equal(found.numpy(), read(megatron["bf16"] / (prefix + ARRAY.megatron)))


def test_values_of_a_runs_own(trained: Path) -> None:
    found = TensorSource(trained).read("exp_avg", ARRAY, (slice(1, 2), slice(3, 100), slice(0, 36)))
    layer = dcp_arrays(trained)[f"exp_avg/{ARRAY.parameter(1)}"]
    np.testing.assert_array_equal(found[0].numpy(), layer.read((slice(3, 100), slice(0, 36))))


def test_what_is_no_models_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give RUN_DIR/checkpoints/step_XXXXXXXX"):
        TensorSource(tmp_path)
    whole = {f"model/{name}": torch.ones(shape) for name, shape in parameter_shapes(AXES).items()}
    name = f"model/{ARRAY.parameter(1)}"
    for change, complaint in (
        ({name: whole[name].bfloat16()}, "dense_h_to_4h.weight have several shapes or dtypes"),
        ({key: tensor.bfloat16() for key, tensor in whole.items()}, "bfloat16, expected float32"),
        ({name: torch.ones(144, 35)}, "dense_h_to_4h.weight have several shapes or dtypes"),
        ({"model/encoder.layers.1.other": torch.ones(1)}, "model/encoder.layers.1.other is no parameter"),
        ({name: None}, f"{name} is missing"),
    ):
        tensors = {key: value for key, value in {**whole, **change}.items() if value is not None}
        write_dcp(tmp_path / "run", tensors)
        with pytest.raises(InputError, match=complaint):
            TensorSource(tmp_path / "run").arrays(MODEL)
        shutil.rmtree(tmp_path / "run")
