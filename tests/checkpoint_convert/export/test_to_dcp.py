"""Export to PyTorch's distributed checkpoint: bit by bit the arrays of the source, loadable by a run."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp

from benchmark.config.run_config import RunConfig
from benchmark.training.checkpoints.checkpoint_reader import fill_from_dcp
from benchmark.training.engine.adam import local
from benchmark.training.engine.distributed import joined_world, read_environment
from benchmark.training.engine.run_progress import starting_progress
from benchmark.training.engine.train_state import TrainState, empty_state, load_initial
from checkpoint_convert.export.to_dcp import to_dcp
from checkpoint_convert.formats.array_table import EXP_AVG, EXP_AVG_SQ, MASTER_WEIGHTS, WEIGHTS
from checkpoint_convert.formats.megatron_checkpoint import MegatronCheckpoint
from model.gpt3 import GPT3
from stage.errors import InputError
from stage.manifest import require_intact
from tests.benchmark.tiny import TINY, Inputs, in_processes
from tests.checkpoint_convert.tiny import CONFIG, TWO_PROCESSES, read
from tests.support import assert_refused, command


def bits(path: Path) -> np.ndarray[Any, Any]:
    return read(path).view(np.uint32)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_loaded_tensors_are_the_arrays_bit_by_bit(dtype: str, megatron: dict[str, Path], tmp_path: Path) -> None:
    done = command("checkpoint_convert", "to-dcp", "--input", megatron[dtype], "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    with torch.device("meta"):
        shapes = {name: value.shape for name, value in GPT3(CONFIG).named_parameters()}
    prefixes = {"model": MASTER_WEIGHTS if dtype == "bf16" else WEIGHTS, "exp_avg": EXP_AVG, "exp_avg_sq": EXP_AVG_SQ}
    loaded = {f"{group}/{name}": torch.full(shape, torch.nan) for group in prefixes for name, shape in shapes.items()}
    assert set(dcp.FileSystemReader(tmp_path / "out").read_metadata().state_dict_metadata) == set(loaded)
    with pytest.warns(UserWarning, match="single process"):
        dcp.load(loaded, checkpoint_id=tmp_path / "out")
    for key, tensor in loaded.items():
        group, name = key.split("/")
        words = name.split(".")
        layer = words.pop(2) if name.startswith("encoder.layers.") else None
        expected = bits(megatron[dtype] / (prefixes[group] + ".".join(words)))
        np.testing.assert_array_equal(
            tensor.numpy().view(np.uint32), expected if layer is None else expected[int(layer)]
        )


def test_output_has_sums_and_a_manifest_and_is_not_made_twice(megatron: dict[str, Path], tmp_path: Path) -> None:
    assert to_dcp(megatron["bf16"], tmp_path / "out")
    assert command("checksums", "verify", tmp_path / "out", "--manifest", tmp_path / "out.md5").returncode == 0
    manifest = require_intact(tmp_path / "out")
    assert manifest is not None
    assert manifest.stage == "to-dcp"
    assert not (tmp_path / "out" / "progress.json").exists()
    assert to_dcp(megatron["bf16"], tmp_path / "out") is None
    words = ["checkpoint_convert", "to-dcp", "--input", megatron["fp32"], "--output", tmp_path / "out"]
    assert_refused(command(*words), "exists and was made from another source", "--force")
    assert to_dcp(megatron["fp32"], tmp_path / "out", force=True)


def _state(config: RunConfig) -> dict[str, dict[str, Any]]:
    """This process's parts of weights and moments, read from both formats."""
    assert config.checkpoint is not None
    with joined_world(config.system, read_environment()) as world:
        states: dict[str, TrainState] = {}
        for name in ("zarr", "dcp"):
            states[name] = empty_state(config, world, starting_progress(config.benchmark, 0))
        load_initial(states["zarr"], MegatronCheckpoint(config.checkpoint))
        fill_from_dcp(states["dcp"].tensors(), config.checkpoint.with_name("dcp"))
        return {
            name: {key: local(tensor).numpy().copy() for key, tensor in state.tensors().items()}
            for name, state in states.items()
        }


@pytest.mark.slow
def test_a_runs_loader_reads_it_into_any_topology(megatron: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(megatron["bf16"], tmp_path / "checkpoint")
    to_dcp(tmp_path / "checkpoint", tmp_path / "dcp")
    config = Inputs(tmp_path).config(tmp_path / "run", dataclasses.replace(TINY, model=CONFIG), TWO_PROCESSES)
    for found in in_processes(2, _state, config):
        assert found["zarr"].keys() == found["dcp"].keys()
        for key, expected in found["zarr"].items():
            np.testing.assert_array_equal(found["dcp"][key], expected)


MOMENT = f"{EXP_AVG_SQ}encoder.layers.mlp.dense_4h_to_h.bias"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda source: shutil.rmtree(source / MOMENT), r"dense_4h_to_h\.bias: array is missing"),
        (lambda source: (source / MOMENT / "1.0").write_bytes(b"short"), "a chunk cannot be read"),
        (lambda source: (source / "metadata.json").unlink(), "not a Megatron zarr checkpoint"),
    ],
    ids=["array", "chunk", "folder"],
)
def test_damaged_sources_are_refused_and_nothing_is_published(
    damage: Any, complaint: str, megatron: dict[str, Path], tmp_path: Path
) -> None:
    source = tmp_path / "source"
    shutil.copytree(megatron["bf16"], source)
    damage(source)
    with pytest.raises(InputError, match=complaint):
        to_dcp(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
