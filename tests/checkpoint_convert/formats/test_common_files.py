"""Adam's step in common.pt, and which weights of a Megatron checkpoint are the FP32 ones."""

import argparse
from pathlib import Path

import pytest
import torch

from checkpoint_convert.formats.array_table import MASTER_WEIGHTS, WEIGHTS
from checkpoint_convert.formats.step_files import adam_step, common_files, fp32_weights_prefix
from stage.errors import InputError


def test_step_of_no_file_and_of_a_damaged_one(tmp_path: Path) -> None:
    path = tmp_path / "common.pt"
    assert adam_step(tmp_path) is None
    for dtype in ("fp32", "bf16"):
        path.write_bytes(common_files(dtype, 192)["common.pt"])
        assert adam_step(tmp_path) == 192
    steps: tuple[object, ...] = (None, "4000", True, torch.tensor(4000), argparse.Namespace(step=4000))
    contents: list[dict[str, object]] = [{}, {"optimizer": {"param_groups": []}}]
    contents += [{"optimizer": {"param_groups": [{"step": step}]}} for step in steps]
    for content in contents:
        torch.save(content, path)
        with pytest.raises(InputError, match=r"not a checkpoint's common\.pt"):
            adam_step(tmp_path)


def test_fp32_weights_are_the_master_copy_where_there_is_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no metadata\.json in it"):
        fp32_weights_prefix(tmp_path)
    (tmp_path / "metadata.json").write_text("{}")
    for prefix in (WEIGHTS, MASTER_WEIGHTS):
        (tmp_path / f"{prefix}x").mkdir()
        assert fp32_weights_prefix(tmp_path) == prefix
