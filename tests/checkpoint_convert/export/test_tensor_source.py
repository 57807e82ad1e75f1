"""Tensors by the names of a run's checkpoint, out of a converted checkpoint and out of a run's own."""

from pathlib import Path

import numpy as np
import pytest
import torch

from checkpoint_convert.export.tensor_source import MODEL, MOMENTS, DcpSource, ZarrSource, open_tensor_source
from checkpoint_convert.formats.array_table import EXP_AVG_SQ, MASTER_WEIGHTS
from checkpoint_convert.model_sizes.parameters import parameter_shapes
from stage.errors import InputError
from tests.checkpoint_convert.checkpoints import write_dcp
from tests.checkpoint_convert.tiny import read

NAME, ARRAY = "encoder.layers.1.mlp.dense_h_to_4h.weight", "encoder.layers.mlp.dense_h_to_4h.weight"


def test_converted_checkpoint(megatron: dict[str, Path]) -> None:
    source = open_tensor_source(megatron["bf16"])
    assert isinstance(source, ZarrSource)
    expected = parameter_shapes({"L": 2, "H": 36, "F": 144, "V": 208, "P": 208})
    for group in (MODEL, *MOMENTS):
        assert dict(source.shapes(group)) == expected
    for key, prefix in ((f"{MODEL}/{NAME}", MASTER_WEIGHTS), (f"exp_avg_sq/{NAME}", EXP_AVG_SQ)):
        np.testing.assert_array_equal(source.read(key, (144, 36)).numpy(), read(megatron["bf16"] / (prefix + ARRAY))[1])


def test_runs_own_checkpoint(tmp_path: Path) -> None:
    tensors = {f"{MODEL}/{NAME}": torch.randn(6, 4), f"exp_avg/{NAME}": torch.randn(6, 4)}
    write_dcp(tmp_path / "run", tensors)
    source = open_tensor_source(tmp_path / "run")
    assert isinstance(source, DcpSource)
    assert [dict(source.shapes(group)) for group in (MODEL, *MOMENTS)] == [{NAME: (6, 4)}, {NAME: (6, 4)}, {}]
    for key, tensor in tensors.items():
        assert torch.equal(source.read(key, (6, 4)), tensor)


def test_what_is_neither_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give RUN_DIR/checkpoints/step_XXXXXXXX"):
        open_tensor_source(tmp_path)
