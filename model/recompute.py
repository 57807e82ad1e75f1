"""Activation recomputation: what a block keeps for its backward pass, and what it computes again.

none        everything
selective   what goes into LayerNorms, GELU and attention, and what comes out of attention. LayerNorms, GELU and, under
            tensor parallelism, gathered sequences are made again; no matrix product is
full        the block's input; all but the block's last matrix product are made again: two thirds of the forward pass

Each recomputed part ends in a matrix product whose result nobody needs twice: PyTorch stops just before it.
"""

from functools import partial

from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import checkpoint

from model.gpt3 import MLP, Block, SelfAttention
from model.gpt3_config import Recompute

WRAPPED = "_checkpoint_wrapped_module."


def recomputing(block: Block, recompute: Recompute) -> nn.Module:
    """The block, changed so that it keeps no more than ``recompute`` says. There is no dropout, so no random state."""
    if recompute == "full":
        return checkpoint_wrapper(block, preserve_rng_state=False)
    if recompute == "selective":
        for module in block.children():
            if isinstance(module, (SelfAttention, MLP)):
                module.segment = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
    return block
