"""The two small files: as the reference's converter writes them, and what is read of them."""

import argparse
from pathlib import Path

import pytest
import torch

from checkpoint_convert.formats.array_table import MASTER_WEIGHTS, WEIGHTS
from checkpoint_convert.formats.common_files import PARAM_GROUP, adam_step, common_files, fp32_weights_prefix
from stage.errors import InputError


def write(folder: Path, dtype: str) -> None:
    for name, content in common_files(dtype).items():
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_files_of_either_kind(dtype: str, tmp_path: Path) -> None:
    write(tmp_path, dtype)
    assert (tmp_path / "metadata.json").read_bytes() == b'{"sharded_backend": "zarr"}'
    optimizer = torch.load(tmp_path / "common.pt", weights_only=True)["optimizer"]
    assert (optimizer["optimizer"] if dtype == "bf16" else optimizer)["param_groups"] == [PARAM_GROUP]
    assert adam_step(tmp_path) == 4000


def test_step_of_no_file_and_of_a_damaged_one(tmp_path: Path) -> None:
    assert adam_step(tmp_path) is None
    steps: tuple[object, ...] = (None, "4000", True, torch.tensor(4000), argparse.Namespace(step=4000))
    contents: list[dict[str, object]] = [{}, {"optimizer": {"param_groups": []}}]
    contents += [{"optimizer": {"param_groups": [{"step": step}]}} for step in steps]
    for content in contents:
        torch.save(content, tmp_path / "common.pt")
        with pytest.raises(InputError, match=r"not a checkpoint's common\.pt"):
            adam_step(tmp_path)
    (tmp_path / "common.pt").write_bytes(b"")
    with pytest.raises(InputError, match=r"not a checkpoint's common\.pt"):
        adam_step(tmp_path)


def test_fp32_weights_are_the_master_copy_where_there_is_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no metadata\.json in it"):
        fp32_weights_prefix(tmp_path)
    write(tmp_path, "bf16")
    (tmp_path / f"{WEIGHTS}x").mkdir()
    assert fp32_weights_prefix(tmp_path) == WEIGHTS
    (tmp_path / f"{MASTER_WEIGHTS}x").mkdir()
    assert fp32_weights_prefix(tmp_path) == MASTER_WEIGHTS
