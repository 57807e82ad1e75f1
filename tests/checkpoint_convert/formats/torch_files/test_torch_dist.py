"""Megatron-Core's checkpoints: which folder is one, under which names its arrays are found, which step it was."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from checkpoint_convert.formats.array_table import ARRAYS
from checkpoint_convert.formats.boxes import whole_box
from checkpoint_convert.formats.torch_files.torch_dist import NAMES, is_torch_dist, iteration_folder, open_torch_dist
from stage.errors import InputError
from tests.checkpoint_convert.checkpoints import write_dcp

WORDS = "embedding.word_embeddings.weight"
BY_NAME = {array.megatron: array for array in ARRAYS}
BIAS = BY_NAME["encoder.layers.mlp.dense_4h_to_h.bias"]


def write_torch_dist(folder: Path, tensors: dict[str, Tensor], common: object = None) -> Path:
    write_dcp(folder, tensors)
    (folder / "metadata.json").write_text(json.dumps({"sharded_backend": "torch_dist", "sharded_backend_version": 1}))
    if common is not None:
        torch.save(common, folder / "common.pt")
    return folder


def test_names_are_those_of_megatron_cores_gpt_model() -> None:
    """As GPTModel.sharded_state_dict of Megatron-Core 0.16.1 gives them."""
    layers = "decoder.layers."
    expected = {
        WORDS,
        "embedding.position_embeddings.weight",
        *(f"decoder.final_layernorm.{kind}" for kind in ("weight", "bias")),
        *(f"{layers}self_attention.linear_qkv.layer_norm_{kind}" for kind in ("weight", "bias")),
        *(f"{layers}mlp.linear_fc1.layer_norm_{kind}" for kind in ("weight", "bias")),
        *(f"{layers}self_attention.linear_{what}.{kind}" for what in ("qkv", "proj") for kind in ("weight", "bias")),
        *(f"{layers}mlp.linear_fc{number}.{kind}" for number in (1, 2) for kind in ("weight", "bias")),
    }
    assert set(NAMES.values()) == expected
    assert len(NAMES) == len(expected) == 16


def test_the_folder_is_found(tmp_path: Path) -> None:
    inner = write_torch_dist(tmp_path / "iter_0000012", {WORDS: torch.ones(2, 3)})
    assert is_torch_dist(inner)
    assert not is_torch_dist(tmp_path)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("12")
    assert (is_torch_dist(tmp_path), iteration_folder(tmp_path), iteration_folder(inner)) == (True, inner, inner)
    for text in ("release", "13", "", "9" * 30):
        (tmp_path / "latest_checkpointed_iteration.txt").write_text(text)
        with pytest.raises(InputError, match=r"expected an iteration|not a checkpoint of Megatron-Core's torch_dist"):
            iteration_folder(tmp_path)


@pytest.mark.parametrize(
    ("names", "masters"),
    [
        ({"": torch.float32}, ""),
        ({"": torch.bfloat16, "optimizer.state.fp32_param.": torch.float32}, "optimizer.state.fp32_param."),
        ({"": torch.bfloat16, "optimizer.state.param.": torch.float32}, "optimizer.state.param."),
        ({"": torch.bfloat16}, None),
    ],
    ids=["fp32", "plain", "distributed", "none"],
)
def test_the_fp32_weights_are_found(names: dict[str, torch.dtype], masters: str | None, tmp_path: Path) -> None:
    tensors = {prefix + WORDS: torch.ones(2, 3, dtype=dtype) for prefix, dtype in names.items()}
    checkpoint = open_torch_dist(write_torch_dist(tmp_path / "c", tensors))
    if masters is None:
        with pytest.raises(InputError, match="no FP32 weights in it"):
            checkpoint.masters()
        with pytest.raises(InputError, match="is bfloat16, expected float32"):
            checkpoint.fp32_array("", BY_NAME[WORDS])
    else:
        assert checkpoint.masters() == masters


def test_layers_lie_together_or_each_for_itself(tmp_path: Path) -> None:
    name, values = NAMES[BIAS.megatron], torch.randn(3, 4)
    one = open_torch_dist(write_torch_dist(tmp_path / "together", {name: values}))
    apart = {name.replace("layers.", f"layers.{layer}."): values[layer].clone() for layer in range(3)}
    other = open_torch_dist(write_torch_dist(tmp_path / "apart", apart))
    for checkpoint in (one, other):
        array = checkpoint.array("", BIAS)
        assert array.shape == (3, 4)
        assert torch.equal(torch.from_numpy(array.read(whole_box((3, 4)))), values)
        assert array.read((slice(1, 3), slice(2, 4))).tolist() == values[1:, 2:].tolist()
    with pytest.raises(InputError, match=r"linear_fc1\.bias is missing"):
        one.array("", BY_NAME["encoder.layers.mlp.dense_h_to_4h.bias"])
    apart[name.replace("layers.", "layers.1.")] = torch.randn(5)
    with pytest.raises(InputError, match="differ in shape or dtype"):
        open_torch_dist(write_torch_dist(tmp_path / "differ", apart)).array("", BIAS)


ARGUMENTS = argparse.Namespace(kind=torch.float32)


@pytest.mark.parametrize(
    ("common", "step"),
    [
        (
            {"args": ARGUMENTS, "iteration": 7, "optimizer": {"optimizer": {"param_groups": [{"lr": 0.1, "step": 5}]}}},
            5,
        ),
        ({"args": ARGUMENTS, "iteration": 7, "opt_param_scheduler": {"step_size": 3}}, 7),
        ({"iteration": 7, "optimizer": {0: {"state": {"common_step": 6}}}}, 6),
        ({"args": ARGUMENTS}, None),
        (None, None),
    ],
)
def test_the_step_is_read_without_running_anything(common: Any, step: int | None, tmp_path: Path) -> None:
    checkpoint = open_torch_dist(write_torch_dist(tmp_path / "c", {WORDS: torch.ones(2, 3)}, common))
    assert checkpoint.step() == step


def test_a_damaged_common_file_is_refused(tmp_path: Path) -> None:
    folder = write_torch_dist(tmp_path / "c", {WORDS: torch.ones(2, 3)})
    (folder / "common.pt").write_bytes(b"")
    with pytest.raises(InputError, match=r"common\.pt: not what torch\.save writes"):
        open_torch_dist(folder).step()
