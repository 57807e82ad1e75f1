"""Everything a run is: names and shapes, and what an initial checkpoint has to be."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor

from benchmark.config.run_config import RunConfig
from benchmark.config.system_config import System
from benchmark.training.engine.distributed import joined_world
from benchmark.training.engine.rank_environment import read_environment
from benchmark.training.engine.train_state import TiedTable
from tests.benchmark.runs import loaded_state, system_of
from tests.benchmark.tiny import TINY, Inputs, in_processes

H, LAYERS = 40, 4
OF_A_LAYER = {
    "input_layernorm.weight": (H,),
    "input_layernorm.bias": (H,),
    "self_attention.query_key_value.weight": (3 * H, H),
    "self_attention.query_key_value.bias": (3 * H,),
    "self_attention.dense.weight": (H, H),
    "self_attention.dense.bias": (H,),
    "post_attention_layernorm.weight": (H,),
    "post_attention_layernorm.bias": (H,),
    "mlp.dense_h_to_4h.weight": (4 * H, H),
    "mlp.dense_h_to_4h.bias": (4 * H,),
    "mlp.dense_4h_to_h.weight": (H, 4 * H),
    "mlp.dense_4h_to_h.bias": (H,),
}
OTHERS = {
    "embedding.word_embeddings.weight": (128, H),
    "embedding.position_embeddings.weight": (32, H),
    "encoder.final_layernorm.weight": (H,),
    "encoder.final_layernorm.bias": (H,),
}
SHAPES = OTHERS | {f"encoder.layers.{n}.{name}": shape for n in range(LAYERS) for name, shape in OF_A_LAYER.items()}
WORDS = "embedding.word_embeddings.weight"


def _look(config: RunConfig) -> dict[str, Any]:
    with joined_world(config.system, read_environment()) as world:
        state = loaded_state(config, world)
        tensors = state.tensors()
        assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        for value in state.parameters.values():
            value.grad = torch.ones_like(value.detach())
        total = state.optimizer.gradient_square_sum()  # the number of parameters, each counted once
        torch.distributed.all_reduce(total)
        return {"shapes": shapes, "square sum": float(total)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "system",
    [system_of(1), system_of(4, replicas=2), system_of(4, tensor_parallel=2, pipeline_parallel=2, micro_batch_size=6)],
    ids=["one", "shards, replicas", "tensor, pipeline"],
)
def test_all_processes_together_have_it_once(system: Any, inputs: Inputs, tmp_path: Path) -> None:
    results = in_processes(system.num_devices, _look, inputs.config(tmp_path, system=system))
    kinds = ("model", "exp_avg", "exp_avg_sq")
    everywhere = {name: shape for one in results for name, shape in one["shapes"].items()}
    assert everywhere == {f"{kind}/{name}": shape for kind in kinds for name, shape in SHAPES.items()}
    if system.pipeline_parallel == 2:
        assert all(f"model/{WORDS}" in one["shapes"] for one in results)
        assert "model/encoder.layers.3.mlp.dense_h_to_4h.bias" not in results[0]["shapes"]
    parameters = sum(torch.Size(shape).numel() for shape in SHAPES.values())
    assert [one["square sum"] for one in results] == pytest.approx([parameters] * system.num_devices, rel=1e-12)


def test_checkpoint_of_another_model_or_another_start_is_refused(inputs: Inputs, tmp_path: Path) -> None:
    for benchmark, complaint in (
        (
            dataclasses.replace(TINY, model=dataclasses.replace(TINY.model, num_layers=3)),
            "4 layers, but the model has 3; the checkpoint belongs to another model",
        ),
        (
            dataclasses.replace(TINY, start_iterations=3000),
            r"common\.pt: trained for 4000 steps, but the run starts at 3000; change --start-iterations",
        ),
    ):
        with pytest.raises(RuntimeError, match=f"InputError: .*{complaint}"):
            in_processes(1, _look, inputs.config(tmp_path, benchmark))


def _add(system: System) -> dict[str, Any]:
    with joined_world(system, read_environment()) as world:
        table = TiedTable(world, WORDS)
        mesh = world.mesh["shard"]
        parameters: dict[str, DTensor] = {}
        for name in (WORDS, "other"):
            value = distribute_tensor(torch.zeros(2, 2), mesh, [Replicate()], src_data_rank=None)
            parameters[name] = value.requires_grad_()  # type: ignore[assignment]
            own = torch.full((2, 2), 10.0**world.rank)
            parameters[name].grad = DTensor.from_local(own, mesh, [Replicate()], run_check=False)
        table.add_gradients(parameters)
        gradients = [value.grad for value in parameters.values()]
        assert all(isinstance(gradient, DTensor) for gradient in gradients)
        return {
            "other": table.peer_rank,
            "second": table.is_second_copy,
            "gradients": [gradient.to_local()[0, 0].item() for gradient in gradients if isinstance(gradient, DTensor)],
        }


def test_first_and_last_stage_add_their_gradients_of_the_table() -> None:
    """Stages between have no copy of it."""
    results = in_processes(3, _add, system_of(3, pipeline_parallel=3))
    assert [one["other"] for one in results] == [2, None, 0]
    assert [one["second"] for one in results] == [False, False, True]
    assert [one["gradients"] for one in results] == [[101, 1], [10, 10], [101, 100]]
