"""Checkpoints that several tests read, each made once in a test process."""

import json
from pathlib import Path

import pytest
import torch

from tests.checkpoint_convert.checkpoints import write_dcp
from tests.checkpoint_convert.tiny import AXES, ODD, MakePaxml, parameter_shapes, tiny_values, write_megatron


@pytest.fixture(scope="session")
def make_once(tmp_path_factory: pytest.TempPathFactory) -> MakePaxml:
    from tests.support import make_paxml

    made: dict[str, Path] = {}

    def make(arguments: str) -> Path:
        if arguments not in made:
            made[arguments] = make_paxml(tmp_path_factory.mktemp("paxml") / "checkpoint", arguments)
        return made[arguments]

    return make


@pytest.fixture(scope="session")
def paxml(make_once: MakePaxml) -> Path:
    return make_once(ODD)


@pytest.fixture(scope="session")
def megatron(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same FP32 and BF16 checkpoint, without manifests."""
    folder, values = tmp_path_factory.mktemp("megatron"), tiny_values()
    return {dtype: write_megatron(folder / dtype, values, dtype) for dtype in ("fp32", "bf16")}


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's checkpoint after 5 steps, one of them skipped, in its run folder."""
    run = tmp_path_factory.mktemp("run")
    checkpoint = run / "checkpoints" / "step_00000005"
    random = torch.Generator().manual_seed(1)
    shapes = {
        f"{group}/{name}": shape
        for group in ("model", "exp_avg", "exp_avg_sq")
        for name, shape in parameter_shapes(AXES).items()
    }
    write_dcp(checkpoint, {key: 0.3 * torch.randn(shape, generator=random) for key, shape in shapes.items()})
    (run / "config.json").write_text(
        json.dumps({"benchmark": {"start_iterations": 4000, "model": {"num_attention_heads": 4}, "name": "x"}})
    )
    progress = {"start_samples": 3000 * 16, "global_batch_size": 16, "steps": 5, "skipped_steps": 1, "seed": 1}
    (checkpoint / "progress.json").write_text(json.dumps(progress))
    return checkpoint
