"""Choose this process's attention kernel before the state is loaded."""

import torch

from benchmark.config.run_config import RunConfig
from benchmark.training.engine.distributed import World
from model.passes.attention_proof import proved_attention


def settle_attention(config: RunConfig, world: World) -> str:
    """Prove the kernel on the shape of this process's passes (model/passes/attention_proof.py), in a second or two.

    Returns the line to log; empty on a CPU, which has one kernel. Raises RuntimeError if no kernel is right.
    """
    if world.device.type != "cuda":
        return ""
    dtype, system = torch.bfloat16 if config.precision == "bf16" else torch.float32, config.system
    said = proved_attention(
        world.device, dtype, config.benchmark.model, ranks=system.tensor_parallel, batch=system.micro_batch_size
    )
    torch.cuda.empty_cache()  # the state is to find the device as it was
    return said
