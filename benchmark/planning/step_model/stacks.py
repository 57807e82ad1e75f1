"""Describe stacks as data: fused kernels and hidden messages. ``ours`` is this repository's engine, the others are as
published.

A share "hidden" is a share of the time of messages. Matrix products run beside hidden messages and are slowed down by
the share of the device that the messages take (the constant ``overlap_slowdown``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from benchmark.config.number_formats import Precision

AttentionKernel = Literal["flash", "cudnn"]
"""Kernels of attention: FlashAttention 2 (flash); cuDNN's kernels or FlashAttention 3 (cudnn)."""
OverlapFeature = Literal["tp-overlap", "dp-overlap", "p2p-overlap"]
"""Messages that a stack hides behind computation: tensor-parallel, data-parallel, between pipeline stages."""
Feature = OverlapFeature | Literal["compiled-kernels"]
"""Parts of a stack that it can do without; this repository compiles kernels for a rotary embedding, SwiGLU, RMSNorm and
losses (model/fused_kernel.py)."""
Sharding = Literal["zero1", "fsdp"]
"""State sharded over the data-parallel devices: the optimizer's (zero1), or everything, gathered while in use
(fsdp)."""


@dataclass(frozen=True)
class Stack:
    """A code: its fused kernels, kept tensors and overlaps."""

    title: str
    source: str
    """Source of the description."""
    attention: AttentionKernel
    ours: bool = False
    """True for this repository: products and bytes of kernels are those that model/decoder_sizes.py gives."""
    merged_slots: bool = False
    """True if the pipeline runs slots of one forward and one backward pass; otherwise 1F1B, one pass at a time."""
    sharding: Sharding = "zero1"
    """Sharding without a pipeline; with a pipeline, stacks shard the optimizer's state alone."""
    gathers_again: bool = True
    """True if the backward pass gathers the inputs of two linear layers once more (sequence parallelism)."""
    async_backward: bool = True
    """True if four of the six messages of a block's backward pass are always hidden: the input's gather beside the
    product for the input's gradient, its scatter beside the product for the weight's."""
    unmeasured: tuple[OverlapFeature, ...] = ()
    """Messages that the code means to hide, though nobody has measured it yet."""
    separate_projections: bool = False
    """True if query, key and value, and the MLP's gate, are separate products that each read the same input."""
    fused_accumulation: bool = True
    """True if the weight gradient's product adds to the gradient buffer itself."""
    gradient_bytes: int = 4
    """Bytes of a gradient as it is summed over data-parallel devices."""
    ends_count: bool = True
    """True if embedding and output count as a layer each when the layers alone cannot be divided evenly (Llama 3's
    126)."""
    remakes: Mapping[Precision, tuple[str, ...]] = field(default_factory=dict)
    """Linear layers, by precision, whose products selective recomputation repeats along with all elementwise
    operations; empty if it repeats no product."""
    stops_early: bool = False
    """True if full recomputation ends with the last tensor that the backward pass needs, without a block's last product
    (torch.utils.checkpoint without re-entrance, since PyTorch 2.1)."""
    fp8_passes: float = 1.0
    """Passes that cast inputs and gradients to FP8, over those of delayed scaling fused with the kernel before."""
    precisions: tuple[Precision, ...] = ("bf16",)
    keeps_gathered: bool = False
    """True if a block without recomputation keeps the inputs of its products as gathered, not its part of them."""
    keeps_summed: bool = False
    """True if a device keeps its share of the summed gradients beside the gradients themselves."""
    logits_tiles: bool = False
    """True if losses are computed in logits tiles, and the logits of a micro-batch are never there all at once."""
    temporary_bytes: float = 0.0
    """Bytes at the peak besides those that the memory formula counts."""
    dropout: bool = True
    """True if dropout masks are drawn and kept."""


STACKS = {
    "ours": Stack(
        title="this repository",
        source="model/ and benchmark/training/engine/; measured on one H100 alone",
        attention="cudnn",
        ours=True,
        precisions=("bf16", "fp32", "fp8"),
        merged_slots=True,
        async_backward=False,  # as measured, forward and backward alike
        unmeasured=("p2p-overlap",),
        ends_count=False,
        keeps_gathered=True,
        keeps_summed=True,
        logits_tiles=True,
        temporary_bytes=1.0 * 2**30,  # by dry runs of dgxh100_n64 and of Llama 3.1 on dgxh100_n1
        dropout=False,
    ),
    "megatron": Stack(
        title="Megatron-LM, core 0.5 and later",
        source="Megatron-LM README: tensor, data and pipeline messages overlapped, fused kernels",
        attention="flash",
        precisions=("bf16", "fp8"),
    ),
    "nemo": Stack(
        title="NeMo recipes",
        source="NVIDIA DGX Cloud recipe, NeMo 25.04 (docs/facts/peers.md 1.1): TP, DP, P2P overlap, fused accumulation",
        attention="cudnn",
        gradient_bytes=2,
        precisions=("bf16", "fp8"),
        dropout=False,
    ),
    "torchtitan": Stack(
        title="torchtitan",
        source="torchtitan benchmarks/ and parallelize_llama.py at 9dec370: FSDP2, compiled blocks, asynchronous TP",
        attention="flash",
        sharding="fsdp",
        async_backward=False,
        separate_projections=True,
        gathers_again=False,  # the gathered inputs are kept, or made again with the rest
        # of every two products by aten.mm one is kept: not of those in FP8, which are other operators
        remakes={
            "bf16": ("key", "output", "up"),
            "fp8": ("query", "key", "value", "output", "gate", "up"),
        },
        stops_early=True,
        fp8_passes=2.0,  # dynamic scaling: the largest is found first
        fused_accumulation=False,
        precisions=("bf16", "fp8"),
        dropout=False,
    ),
}
"""Stacks by name."""
