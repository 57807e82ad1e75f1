"""Copies that should be equal: they are, and where they are not the run says so and ends."""

import dataclasses
import os
from pathlib import Path

import pytest
import torch

from benchmark.config.run_config import RunConfig
from benchmark.config.system_config import System
from benchmark.run_record.checkpoint_list import newest_checkpoint
from benchmark.training.engine.adam import Adam, local
from benchmark.training.engine.distributed import joined_world
from benchmark.training.engine.rank_environment import read_environment
from benchmark.training.observers.copy_audit import audit_replicas
from benchmark.training.train import train
from foundation.errors import CheckFailed
from tests.benchmark.runs import events, loaded_state, system_of
from tests.benchmark.tiny import TINY, Inputs, in_processes

SYSTEM = system_of(4, tensor_parallel=2, pipeline_parallel=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "system",
    [
        system_of(2, tensor_parallel=2, micro_batch_size=12),
        system_of(2, pipeline_parallel=2, micro_batch_size=6),
        system_of(2, replicas=2, micro_batch_size=6),
    ],
    ids=["tensor", "pipeline", "replicas"],
)
def test_copies_stay_equal(system: System, inputs: Inputs, tmp_path: Path) -> None:
    """At a learning rate at which 20 steps change the weights as much as 200 of the benchmark's."""
    faster = dataclasses.replace(TINY.optimizer, lr=1e-2)
    longer = dataclasses.replace(TINY, train_samples=4020 * 12, eval_interval_samples=4020 * 12, optimizer=faster)
    config = inputs.config(tmp_path / "run", longer, system=system, precision="bf16", audit_interval=10)
    assert in_processes(system.num_devices, train, config) == ["success"] * system.num_devices
    audits = [(event["steps"], event["differences"]) for event in events(config.run_dir, "audit")]
    assert audits == [(10, []), (20, [])]
    losses = [event["loss"] for event in events(config.run_dir, "step")]
    assert losses[-1] < losses[0] - 0.5


def _train_without_clipping_layernorms_on_rank_1(config: RunConfig) -> str:
    """What happened to BLOOM: one rank's clipping passes over the LayerNorms. Returns what the run fails with."""
    scale = Adam.scale_gradients

    def leaving_out(adam: Adam, factor: float) -> None:
        kept = {name: value.grad.clone() for name, value in adam._parameters.items() if "layernorm" in name}  # type: ignore[union-attr]
        scale(adam, factor)
        if os.environ["RANK"] == "1":
            for name, gradient in kept.items():
                adam._parameters[name].grad = gradient

    setattr(Adam, "scale_gradients", leaving_out)  # noqa: B010
    try:
        return train(config)
    except CheckFailed as error:
        return str(error)


@pytest.mark.slow
def test_layernorms_that_clipping_left_out_are_found(inputs: Inputs, tmp_path: Path) -> None:
    clipped = dataclasses.replace(TINY, optimizer=dataclasses.replace(TINY.optimizer, clip_grad=0.1))
    system = system_of(2, tensor_parallel=2)
    config = inputs.config(tmp_path / "run", clipped, system=system, audit_interval=3, save_interval=4)
    for complaint in in_processes(2, _train_without_clipping_layernorms_on_rank_1, config):
        assert complaint.startswith("copies differ between devices, exp_avg/")
        assert "layernorm" in complaint
    (audit,) = events(config.run_dir, "audit")
    assert audit["steps"] == 3
    named = {line.split(":")[0].split("/", 1)[1] for line in audit["differences"]}
    assert all("layernorm" in name for name in named)
    assert "encoder.layers.0.input_layernorm.weight" in named
    assert "exp_avg/encoder.final_layernorm.bias: ranks 1 differ from rank 0" in audit["differences"]
    assert newest_checkpoint(config.run_dir) is None
    assert not (config.run_dir / "summary.json").exists()  # the run goes on from its newest sound checkpoint


def _audit_after(config: RunConfig, flipped: list[tuple[int, str]]) -> list[list[str]]:
    """Change one bit of one process's part of a parameter, look, and change it back; for each of ``flipped``."""
    with joined_world(config.system, read_environment()) as world:
        state = loaded_state(config, world)
        found = [audit_replicas(state)]
        for rank, name in flipped:
            for _ in range(2):
                if world.rank == rank:
                    local(state.tensors()[f"model/{name}"]).view(torch.int32).flatten()[0] ^= 1
                found.append(audit_replicas(state))
        return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "flipped"),
    [
        (
            SYSTEM,
            {
                (2, "embedding.word_embeddings.weight"): "ranks 2 differ from rank 0",
                (1, "embedding.position_embeddings.weight"): "ranks 1 differ from rank 0",
                (3, "encoder.layers.3.mlp.dense_4h_to_h.bias"): "ranks 3 differ from rank 2",
            },
        ),
        (
            system_of(2, replicas=2),
            {(1, "encoder.layers.3.mlp.dense_h_to_4h.weight"): "ranks 1 differ from rank 0"},
        ),
    ],
)
def test_one_bit_on_one_process_is_found(
    system: System, flipped: dict[tuple[int, str], str], inputs: Inputs, tmp_path: Path
) -> None:
    found = in_processes(system.num_devices, _audit_after, inputs.config(tmp_path, system=system), list(flipped))
    told = [[[f"model/{name}: {expected}"], []] for (_, name), expected in flipped.items()]
    assert found == [[[], *(one for pair in told for one in pair)]] * system.num_devices
