"""Megatron-Core's format: what PyTorch loads under its names, bit by bit."""

import errno
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

from checkpoint_convert.export import to_torch_dist as module
from checkpoint_convert.export.exported_arrays import HashingFile
from checkpoint_convert.export.to_torch_dist import CORE, to_torch_dist
from checkpoint_convert.formats.array_table import ARRAYS, EXP_AVG, EXP_AVG_SQ, MASTER_WEIGHTS
from checkpoint_convert.formats.megatron_checkpoint import MegatronCheckpoint
from foundation.errors import InputError
from model.gpt3 import GPT3
from tests.checkpoint_convert.in_process import run
from tests.checkpoint_convert.tiny import CONFIG, read

SCRIPT = Path(__file__).with_name("megatron_core_loads.py")
GROUPS = {
    "optimizer.state.fp32_param.": MASTER_WEIGHTS,
    "optimizer.state.param.": MASTER_WEIGHTS,
    "optimizer.state.exp_avg.": EXP_AVG,
    "optimizer.state.exp_avg_sq.": EXP_AVG_SQ,
}


@pytest.mark.parametrize(
    ("dtype", "together"), [("fp32", 1 << 28), ("bf16", 1)], ids=["layers_together", "layer_by_layer"]
)
def test_pytorch_loads_every_array_by_megatron_cores_name(
    dtype: str, together: int, megatron: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST_FILE_BYTES", together)
    source = megatron["bf16"]
    assert to_torch_dist(source, tmp_path / "out", dtype=dtype)
    folder = tmp_path / "out" / "iter_0004000"
    assert (tmp_path / "out" / "latest_checkpointed_iteration.txt").read_text() == "4000\n"
    expected = {
        prefix + CORE[array.megatron]: read(source / (ours + array.megatron))
        for prefix, ours in {**GROUPS, "": MASTER_WEIGHTS}.items()
        for array in ARRAYS
    }
    if dtype == "bf16":
        expected |= {name: expected[name].astype(ml_dtypes.bfloat16) for name in CORE.values()}
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
    assert run("verify", tmp_path / "out", "--manifest", tmp_path / "out.md5").returncode == 0
    assert run("compare", tmp_path / "out", folder).stdout.count("Adam's step: 4000 and 4000") == 1


def test_iteration_and_adams_step_of_a_run(trained: Path, tmp_path: Path) -> None:
    done = run("to-torch-dist", "--input", trained, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "out" / "iter_0003005"
    common = torch.load(folder / "common.pt", weights_only=True)
    assert (common["iteration"], common["optimizer"]["optimizer"]["param_groups"][0]["step"]) == (3005, 4004)


def test_adams_step_is_never_assumed(megatron: dict[str, Path], trained: Path, tmp_path: Path) -> None:
    source = shutil.copytree(megatron["bf16"], tmp_path / "source")
    words = ["to-torch-dist", "--input", source, "--output", tmp_path / "out"]
    run(*words, "--step", 192).refused("--step 192", "tells that Adam's step is 4000; leave --step out")
    (source / "common.pt").unlink()
    run(*words).refused("tell Adam's step; pass --step")
    run(*words, "--step", -1).refused("--step -1: expected 0 to")
    assert run(*words, "--step", 192).returncode == 0
    assert (tmp_path / "out" / "iter_0000192").is_dir()
    alone = shutil.copytree(trained, tmp_path / "alone")  # without its run's config.json
    run("to-torch-dist", "--input", alone, "--output", tmp_path / "out_2").refused("tell Adam's step; pass --step")


def test_a_lost_moment_is_refused(megatron: dict[str, Path], tmp_path: Path) -> None:
    source = shutil.copytree(megatron["bf16"], tmp_path / "source")
    shutil.rmtree(source / f"{EXP_AVG_SQ}encoder.layers.mlp.dense_4h_to_h.bias")
    with pytest.raises(InputError, match=r"dense_4h_to_h\.bias is missing"):
        to_torch_dist(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_full_disk_within_torch_names_the_file(
    megatron: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.save raises a RuntimeError of its own."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(HashingFile, "write", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/out\.partial/writing/"):
        to_torch_dist(megatron["fp32"], tmp_path / "out")
    monkeypatch.undo()
    assert to_torch_dist(megatron["fp32"], tmp_path / "out")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("megatron") is None, reason="pip install megatron-core psutil")
def test_megatron_cores_own_model_gives_our_logits(megatron: dict[str, Path], tmp_path: Path) -> None:
    assert to_torch_dist(megatron["bf16"], tmp_path / "out", dtype="fp32")
    words: list[Any] = [sys.executable, SCRIPT, tmp_path / "out", "4", tmp_path / "logits"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ours = GPT3(CONFIG)
    MegatronCheckpoint(megatron["bf16"]).load_weights(dict(ours.named_parameters()))
    with torch.no_grad():
        expected = ours(torch.arange(40)[None])
    assert (torch.load(tmp_path / "logits") - expected).abs().max() < 1e-3 * expected.std()
