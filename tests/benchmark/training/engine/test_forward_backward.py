"""Passes by autograd and FSDP2: what is accumulated is what one batch gives."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmark.config.run_config import RunConfig
from benchmark.training.engine.adam import gradient_of, local
from benchmark.training.engine.distributed import joined_world, read_environment
from benchmark.training.engine.forward_backward import ShardedModel, mean_loss
from benchmark.training.engine.micro_batches import read_micro_batch
from benchmark.training.engine.run_progress import starting_progress
from benchmark.training.engine.train_state import empty_state, load_initial
from benchmark.training.inputs import open_data
from checkpoint_convert.formats.megatron_checkpoint import MegatronCheckpoint
from tests.benchmark.runs import system_of
from tests.benchmark.tiny import Inputs, in_processes


def test_mean_loss_is_over_the_tokens_that_count() -> None:
    losses = torch.tensor([[1.0, 2.0, 30.0], [4.0, 50.0, 60.0]])
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    assert mean_loss(losses, mask).item() == pytest.approx(7 / 3)


def _passes(config: RunConfig) -> dict[str, Any]:
    """Losses and gradients of the same eight samples in micro-batches of eight and of two; and their evaluation."""
    with joined_world(config.system, read_environment()) as world:
        state = empty_state(config, world, starting_progress(config.benchmark, 17))
        assert config.checkpoint is not None
        load_initial(state, MegatronCheckpoint(config.checkpoint))
        windows = open_data(config, 17).training
        found: dict[str, Any] = {"kind": type(state.forward_backward) is ShardedModel}
        ids = np.arange(48_000, 48_008)[world.data_rank :: world.data_parallel]
        for size in (8 // world.size, 2):
            batches = [read_micro_batch(windows, some, 100) for some in ids.reshape(-1, size)]
            share = state.forward_backward.train(batches, len(batches))
            torch.distributed.all_reduce(share)
            gradients = {name: local(gradient_of(value)).clone() for name, value in state.parameters.items()}
            found[f"of {size}"] = share.item(), {name: value.numpy() for name, value in gradients.items()}
            state.optimizer.clear_gradients()
        total = state.forward_backward.evaluate(batches, len(batches))
        torch.distributed.all_reduce(total)
        found["evaluation"] = total.tolist()
        return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "system", [system_of(1, keep_unsharded=False), system_of(2, keep_unsharded=False)], ids=["one", "two"]
)
def test_accumulated_micro_batches_are_one_batch(system: Any, inputs: Inputs, tmp_path: Path) -> None:
    found = in_processes(system.num_devices, _passes, inputs.config(tmp_path, system=system))
    for one in found:
        assert one["kind"]
        (whole_loss, whole), (loss, gradients) = one[f"of {8 // system.num_devices}"], one["of 2"]
        assert loss == pytest.approx(whole_loss, rel=1e-6)
        for name, expected in whole.items():
            np.testing.assert_allclose(gradients[name], expected, rtol=1e-4, atol=1e-7, err_msg=name)
        loss_sum, scored = one["evaluation"]
        assert scored == 8 * 15
        assert loss_sum / scored == pytest.approx(loss, rel=1e-6)
    assert 4.5 < found[0]["of 2"][0] < 5.5  # ln 128 = 4.85
