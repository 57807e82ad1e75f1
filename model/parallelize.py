"""Spread the model over devices, from outside: recomputation, then sharding, in this order (torch_distributed facts 3).

FSDP2 keeps FP32 shards as master weights, gathers them in BF16, and reduces gradients in FP32, which is also the
precision they are accumulated in.
"""

from typing import cast

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from model.gpt3 import GPT3

WRAPPED = "_checkpoint_wrapped_module."


def parallelize(model: GPT3, mesh: DeviceMesh, *, bf16: bool, recompute: bool, keep_unsharded: bool) -> FSDPModule:
    """Shard ``model``, which may be on the meta device, over ``mesh``.

    ``mesh`` has one axis (shard everywhere) or two (replicate, shard). ``recompute``: blocks keep only their input for
    the backward pass. ``keep_unsharded``: keep gathered parameters until the backward pass is done.
    """
    layers = model.encoder.layers
    if recompute:
        for name, block in layers.items():
            layers[name] = checkpoint_wrapper(block, preserve_rng_state=False)
    policy = (
        MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if bf16 else MixedPrecisionPolicy()
    )
    for block in layers.values():
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=not keep_unsharded)
    # The word embedding belongs to the root, for it is both the first and the last thing the model reads.
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    return cast(FSDPModule, model)


def parameters_by_name(model: nn.Module) -> dict[str, nn.Parameter]:
    """The model's parameters under the names of ``gpt3.py``, however it is wrapped."""
    return {name.replace(WRAPPED, ""): parameter for name, parameter in model.named_parameters()}
