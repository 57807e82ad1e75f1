"""Tensors and metadata as PyTorch's distributed checkpoints hold them: PyTorch reads them."""

import io
from pathlib import Path

import torch

from checkpoint_convert.export.dcp_writer import dcp_file_name, save_tensor
from checkpoint_convert.export.export_files import HashingFile
from stage.outputs.digest import md5_file


def test_a_tensor_is_what_torch_saves(tmp_path: Path) -> None:
    tensor = torch.arange(12.0).reshape(3, 4).to(torch.bfloat16)
    file = HashingFile(tmp_path / "a")
    save_tensor(tensor[1:], file)
    md5 = file.finish()
    assert torch.equal(torch.load(io.BytesIO((tmp_path / "a").read_bytes()), weights_only=True), tensor[1:])
    assert md5 == md5_file(tmp_path / "a")


def test_files_have_the_names_of_rank_0() -> None:
    assert [dcp_file_name(number) for number in (0, 11)] == ["__0_0.distcp", "__0_11.distcp"]
