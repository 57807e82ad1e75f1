"""Everything a run is: names and shapes, and what an initial checkpoint has to be."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmark.config.run_config import RunConfig
from benchmark.training.engine.distributed import joined_world, read_environment
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
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        types = {tensor.dtype for tensor in tensors.values()}
        first = next(iter(tensors.values()))
        first.zero_()
        shared = float(next(iter(state.parameters.values())).detach().full_tensor().abs().sum()) == 0  # type: ignore[attr-defined]
        return {"shapes": shapes, "types": types, "shared": shared, "square sum": _square_sum(state)}


def _square_sum(state: Any) -> float:
    """Of gradients of ones, over all processes: the number of parameters, each counted once."""
    for value in state.parameters.values():
        value.grad = torch.ones_like(value.detach())
    total = state.optimizer.gradient_square_sum()
    torch.distributed.all_reduce(total)
    return float(total)


def test_weights_and_moments_by_name(inputs: Inputs, tmp_path: Path) -> None:
    (found,) = in_processes(1, _look, inputs.config(tmp_path))
    kinds = ("model", "exp_avg", "exp_avg_sq")
    assert found["shapes"] == {f"{kind}/{name}": shape for kind in kinds for name, shape in SHAPES.items()}
    assert found["types"] == {torch.float32}
    assert found["shared"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "system",
    [system_of(2), system_of(2, replicas=2), system_of(4, tensor_parallel=2, pipeline_parallel=2, micro_batch_size=6)],
    ids=["shards", "replicas", "tensor, pipeline"],
)
def test_all_processes_together_have_it_once(system: Any, inputs: Inputs, tmp_path: Path) -> None:
    found = in_processes(system.num_devices, _look, inputs.config(tmp_path, system=system))
    everywhere: dict[str, Any] = {}
    for one in found:
        everywhere |= one["shapes"]
    assert {name.removeprefix("model/"): shape for name, shape in everywhere.items() if "model/" in name} == SHAPES
    if system.pipeline_parallel == 2:
        assert all(f"model/{WORDS}" in one["shapes"] for one in found)
        assert "model/encoder.layers.3.mlp.dense_h_to_4h.bias" not in found[0]["shapes"]
    parameters = sum(torch.Size(shape).numel() for shape in SHAPES.values())
    assert [one["square sum"] for one in found] == pytest.approx([parameters] * system.num_devices, rel=1e-12)


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
