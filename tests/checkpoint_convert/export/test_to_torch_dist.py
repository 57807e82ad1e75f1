"""Megatron-Core's format: what PyTorch and Megatron-Core load, bit by bit, and back again."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp

from checkpoint_convert.conversion.torch_dist_to_megatron import torch_dist_to_megatron
from checkpoint_convert.export import to_torch_dist as module
from checkpoint_convert.export.to_torch_dist import to_torch_dist
from checkpoint_convert.formats.array_table import ARRAYS, EXP_AVG, EXP_AVG_SQ, MASTER_WEIGHTS
from checkpoint_convert.formats.megatron_checkpoint import MegatronCheckpoint
from checkpoint_convert.formats.torch_files.torch_dist import NAMES
from model.gpt3 import GPT3
from stage.errors import InputError
from tests.checkpoint_convert.tiny import CONFIG, GIB, read
from tests.support import REPOSITORY, command

GROUPS = {
    "optimizer.state.fp32_param.": MASTER_WEIGHTS,
    "optimizer.state.param.": MASTER_WEIGHTS,
    "optimizer.state.exp_avg.": EXP_AVG,
    "optimizer.state.exp_avg_sq.": EXP_AVG_SQ,
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("together", [1 << 28, 1], ids=["layers_together", "layer_by_layer"])
def test_pytorch_loads_every_array_by_megatron_cores_name(
    dtype: str, together: int, megatron: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST_FILE_BYTES", together)
    source = megatron["bf16"]
    assert to_torch_dist(source, tmp_path / "out", dtype=dtype)
    folder = tmp_path / "out" / "iter_0004000"
    assert (tmp_path / "out" / "latest_checkpointed_iteration.txt").read_text() == "4000\n"
    expected = {
        prefix + NAMES[array.megatron]: read(source / (ours + array.megatron))
        for prefix, ours in {**GROUPS, "": MASTER_WEIGHTS}.items()
        for array in ARRAYS
    }
    if dtype == "bf16":
        expected |= {name: expected[name].astype(ml_dtypes.bfloat16) for name in NAMES.values()}
    targets = {
        name: torch.zeros(values.shape, dtype=torch.float32 if values.itemsize == 4 else torch.bfloat16)
        for name, values in expected.items()
    }
    with pytest.warns(UserWarning, match="single process"):
        dcp.load(targets, checkpoint_id=folder)
    for name, values in expected.items():
        np.testing.assert_array_equal(targets[name].view(torch.uint8).numpy(), values.view(np.uint8))
    common = torch.load(folder / "common.pt", weights_only=True)
    assert (common["iteration"], common["optimizer"]["optimizer"]["param_groups"][0]["step"]) == (4000, 4000)
    assert json.loads((folder / "metadata.json").read_text())["sharded_backend"] == "torch_dist"
    sums = command("checksums", "verify", tmp_path / "out", "--manifest", tmp_path / "out.md5")
    assert sums.returncode == 0, sums.stderr


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_there_and_back_are_the_same_bytes(dtype: str, megatron: dict[str, Path], tmp_path: Path) -> None:
    out, back = tmp_path / "out", tmp_path / "back"
    words = ["to-torch-dist", "--input", megatron[dtype], "--output", out, "--dtype", dtype, "--workers", "1"]
    assert command("checkpoint_convert", *words).returncode == 0
    words = ["torch-dist-to-megatron", "--input", out, "--output", back, "--dtype", dtype]
    done = command("checkpoint_convert", *words)
    assert done.returncode == 0, done.stderr
    assert same_weights(megatron[dtype], back)
    again = command("checkpoint_convert", *words)
    assert "already made" in again.stdout


def same_weights(one: Path, other: Path) -> bool:
    """All arrays, bit by bit; the chunks of a test's own checkpoint were changed after it was converted."""
    names = [sorted(path.name for path in folder.iterdir()) for folder in (one, other)]
    arrays = [path.name for path in one.iterdir() if path.is_dir()]
    is_rounded = [name for name in arrays if read(one / name).itemsize == 2]
    return names[0] == names[1] and all(
        read(one / name).tobytes() == read(other / name).tobytes() for name in arrays if name not in is_rounded
    )


@pytest.mark.slow
def test_a_runs_own_checkpoint_is_exported_too(trained: Path, tmp_path: Path) -> None:
    assert to_torch_dist(trained, tmp_path / "out")
    (folder,) = (tmp_path / "out").glob("iter_*")
    progress = json.loads((trained / "progress.json").read_text())
    iteration = progress["start_samples"] // progress["global_batch_size"] + 1
    assert folder.name == f"iter_{iteration:07d}"
    ours = {"model/encoder.layers.1.mlp.dense_h_to_4h.bias": torch.zeros(1)}
    metadata = dcp.FileSystemReader(trained).read_metadata().state_dict_metadata
    ours = {name: torch.zeros(metadata[name].size) for name in ours}  # type: ignore[union-attr]
    theirs = {
        name: torch.zeros(dcp.FileSystemReader(folder).read_metadata().state_dict_metadata[name].size)  # type: ignore[union-attr]
        for name in ("optimizer.state.param.decoder.layers.mlp.linear_fc1.bias",)
    }
    with pytest.warns(UserWarning, match="single process"):
        dcp.load(ours, checkpoint_id=trained)
        dcp.load(theirs, checkpoint_id=folder)
    assert torch.equal(next(iter(theirs.values()))[1], next(iter(ours.values())))


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["moment", "chunk"])
def test_damaged_sources_are_refused(damage: str, megatron: dict[str, Path], tmp_path: Path) -> None:
    source = shutil.copytree(megatron["bf16"], tmp_path / "source")
    moment = source / f"{EXP_AVG_SQ}encoder.layers.mlp.dense_4h_to_h.bias"
    if damage == "moment":
        shutil.rmtree(moment)
    else:
        (moment / "1.0").write_bytes(b"short")
    with pytest.raises(InputError, match=r"dense_4h_to_h\.bias"):
        to_torch_dist(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("megatron") is None, reason="pip install megatron-core psutil")
def test_megatron_cores_own_model_gives_our_logits(megatron: dict[str, Path], tmp_path: Path) -> None:
    assert to_torch_dist(megatron["bf16"], tmp_path / "out", dtype="fp32")
    script = REPOSITORY / "tests/checkpoint_convert/export/megatron_core_loads.py"
    words: list[Any] = [sys.executable, script, tmp_path / "out", "4", tmp_path / "logits", tmp_path / "saved"]
    done = subprocess.run(words, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    ours = GPT3(CONFIG)
    MegatronCheckpoint(megatron["bf16"]).load_weights(dict(ours.named_parameters()))
    with torch.no_grad():
        expected = ours(torch.arange(40)[None])
    assert (torch.load(tmp_path / "logits") - expected).abs().max() < 1e-3 * expected.std()
    torch_dist_to_megatron(tmp_path / "saved", tmp_path / "back", dtype="bf16", workers=1, memory_limit=GIB)
    assert same_weights(megatron["bf16"], tmp_path / "back")
