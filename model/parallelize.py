"""Spread the model over devices, from outside, in the only order that works (docs/facts/torch_distributed.md 3):

    1. cut into parts            model_parts.py        axis "pipeline" of the mesh
    2. cut each layer            tensor_parallel.py    axis "tensor"
    3. recomputation             recompute.py
    4. torch.compile, per block
    5. shard what is left        FSDP2, here           axes "replicate" and "shard"

FSDP2 keeps FP32 shards as master weights, gathers them in BF16, and reduces gradients in FP32, which is also the
precision they are accumulated in. It wraps the model on a mesh of size 1, too: it is what adds up the terms of the
gradients that tensor parallelism leaves on each rank.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from model.gpt3 import GPT3, Block
from model.gpt3_config import GPT3Config, Recompute
from model.model_parts import ModelPart
from model.recompute import WRAPPED, recomputing
from model.tensor_parallel import apply_tensor_parallel

AXES = ("pipeline", "replicate", "shard", "tensor")
"""Of the mesh of all devices. Neighbouring ranks are on the same machine: tensor parallelism talks most."""


@dataclass(frozen=True)
class Spread:
    """How to spread the model; the sizes of the axes are the mesh's."""

    bf16: bool
    recompute: Recompute
    compile: bool
    by_hand: bool
    """The passes are part_pass.py's, which take parameters, recomputation and kernels into their own hands; else they
    are autograd's, through what is wrapped here."""
    chunks: int = 1
    """Pipeline stages per device: more than one is the interleaved pipeline (virtual pipeline)."""


def parallelize(config: GPT3Config, mesh: DeviceMesh, spread: Spread) -> list[nn.Module]:
    """This process's parts of the model, on the meta device, in the order of their layers: one for each chunk."""
    ranks = mesh["pipeline"].size()
    model_parts: list[nn.Module] = []
    for chunk in range(spread.chunks):
        part = _model_or_part(config, mesh, ranks * spread.chunks, chunk)
        if mesh["tensor"].size() > 1:
            apply_tensor_parallel(part, mesh["tensor"])
        _shard(part, mesh, spread)
        model_parts.append(part)
    return model_parts


def _model_or_part(config: GPT3Config, mesh: DeviceMesh, num_pipeline_stages: int, chunk: int) -> GPT3 | ModelPart:
    with torch.device("meta"):
        model = GPT3(config)
    if num_pipeline_stages == 1:
        return model
    pipeline_stage = mesh["pipeline"].get_local_rank() + chunk * mesh["pipeline"].size()
    return ModelPart(model, pipeline_stage, num_pipeline_stages)


def _shard(model: GPT3 | ModelPart, mesh: DeviceMesh, spread: Spread) -> None:
    policy = MixedPrecisionPolicy()
    if spread.bf16:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    data_parallel = mesh["replicate", "shard"] if mesh["replicate"].size() > 1 else mesh["shard"]
    layers = model.encoder.layers
    assert isinstance(layers, nn.ModuleDict)
    for name, plain in layers.items():
        assert isinstance(plain, Block)
        block: nn.Module = plain
        if not spread.by_hand:
            layers[name] = block = recomputing(plain, spread.recompute)
            if spread.compile:
                block.compile()
        fully_shard(block, mesh=data_parallel, mp_policy=policy)
    # The word embedding belongs to the root, for it is both the first and the last thing the model reads.
    fully_shard(model, mesh=data_parallel, mp_policy=policy, reshard_after_forward=False)


def parameters_by_name(model_parts: list[nn.Module]) -> dict[str, DTensor]:
    """The parameters of this process's parts of the model under the names of ``gpt3.py``, however they are wrapped."""
    parameters: dict[str, DTensor] = {}
    for part in model_parts:
        for name, parameter in part.named_parameters():
            assert isinstance(parameter, DTensor)
            parameters[name.replace(WRAPPED, "")] = parameter
    return parameters
