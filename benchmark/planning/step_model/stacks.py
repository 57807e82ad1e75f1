"""Stacks: what a code fuses and hides, as data. ``ours`` is this repository's engine, the others' are as published.

A share "hidden" is of the time of messages that matrix products run beside; while they do, the products slow down by
what the messages' kernels take of the device (the constant ``overlap_slowdown``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Schedule = Literal["one pass at a time", "merged slots"]
"""Of the pipeline: 1F1B, interleaved where there are chunks; or slots of a forward and a backward pass each."""
Attention = Literal["unfused", "flash", "cudnn"]
"""Kernels for each step of attention, scores in memory; FlashAttention 2; cuDNN's or FlashAttention 3."""


@dataclass(frozen=True)
class Stack:
    """A code, and what it does while it waits."""

    title: str
    source: str
    """What says so."""
    attention: Attention
    schedule: Schedule = "one pass at a time"
    gathers_again: bool = True
    """Whether the backward pass gathers the inputs of two linear layers once more (sequence parallelism)."""
    async_backward: bool = True
    """Whether the backward pass of a linear layer that begins a block's half gathers its input beside the product for
    the input's gradient, and scatters that beside the one for the weight's: four of its six messages."""
    separate_projections: bool = False
    """Whether query, key, value, and the MLP's gate, are products of their own, each of which reads the same input."""
    fused_accumulation: bool = True
    """Whether the weight gradient's product adds to the gradient buffer itself."""
    accumulator_bytes: int = 4
    """Of a gradient in the buffer that micro-batches add to ..."""
    gradient_bytes: int = 4
    """... and as it is summed over data-parallel devices."""
    pipeline_hidden: bool = True
    """Whether messages between pipeline stages travel beside computation."""
    sums_whole: bool = False
    """Whether gradients are summed by all-reduce, every device getting all, even where the optimizer is sharded."""
    data_hidden: bool = True
    """Whether gradients are summed while the last backward pass runs, parameters gathered in the first forward pass."""
    ends_count: bool = True
    """Whether embedding and output are dealt out as a layer each where layers alone do not go up (Llama 3's 126)."""
    compiled: bool = False
    """Whether it compiles blocks, where it is not switched off."""
    fp8_parameters: bool = False
    """Whether it keeps parameters in FP8, where that is not switched off; else products in FP8 cast their weights."""
    remakes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By precision, the linear layers whose products selective recomputation makes again, with all that is elementwise;
    empty: it makes no product again."""
    stops_early: bool = False
    """Whether full recomputation ends with the last tensor that the backward pass needs: without a block's last product
    (torch.utils.checkpoint without re-entrance, since PyTorch 2.1)."""
    fp8_passes: float = 1.0
    """Passes over inputs and gradients to cast them to FP8, over those of delayed scaling fused with what is before."""
    precisions: tuple[str, ...] = ("bf16",)
    extra_of_mlp: bool = False
    """Whether a block keeps one more tensor of the MLP's width where nothing is made again."""
    temporary_bytes: float = 0.0
    """At the peak, besides what the memory formula counts."""
    dropout: bool = True
    """Whether dropout masks are drawn and kept (GPT-3's training codes do unless the model says 0)."""


STACKS = {
    "ours": Stack(
        title="this repository",
        source="model/ and benchmark/training/engine/; nothing measured at this size yet",
        attention="cudnn",
        schedule="merged slots",
        ends_count=False,
        extra_of_mlp=True,  # this and the next by the dry run of dgxh100_n64: none, selective, full
        temporary_bytes=2.3 * 2**30,
        gathers_again=True,
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
    "mlperf_nvidia": Stack(
        title="NVIDIA's MLPerf submissions, rounds 4.0 and 4.1",
        source="mlcommons/training_results: user buffers for TP messages, BF16 gradients summed, distributed Adam",
        attention="cudnn",
        gradient_bytes=2,
        accumulator_bytes=2,
        fp8_parameters=True,
        precisions=("bf16", "fp8"),
    ),
    "mlperf_nvidia_3_1": Stack(
        title="NVIDIA's MLPerf submissions, round 3.1",
        source="mlcommons/training_results_v3.1: as the later ones, kernels and clocks of their time",
        attention="cudnn",
        gradient_bytes=2,
        accumulator_bytes=2,
        precisions=("bf16", "fp8"),
    ),
    "mlperf_nvidia_3_0": Stack(
        title="NVIDIA's MLPerf submissions, round 3.0",
        source="mlcommons/training_results_v3.0: as the later ones, kernels and clocks of their time",
        attention="cudnn",
        gradient_bytes=2,
        accumulator_bytes=2,
        precisions=("bf16", "fp8"),
    ),
    "nemo_2024": Stack(
        title="NeMo recipes of release 24.11",
        source="NVIDIA/dgxc-benchmarking 24.11.1: as the later ones, a year older",
        attention="cudnn",
        gradient_bytes=2,
        precisions=("bf16", "fp8"),
        dropout=False,
    ),
    "nemo_docs": Stack(
        title="NeMo's performance tables of 2024",
        source="docs.nvidia.com, NeMo performance summaries 24.07 and 24.09, and NeMo launcher's tables",
        attention="cudnn",
        gradient_bytes=2,
        precisions=("bf16", "fp8"),
        dropout=False,
    ),
    "megatron_2021": Stack(
        title="Megatron-LM of 2021",
        source="arXiv 2104.04473: no overlap of messages, attention in steps, full recomputation, no sharding",
        attention="unfused",
        async_backward=False,
        gathers_again=False,
        pipeline_hidden=False,
        data_hidden=False,
    ),
    "megatron_2022": Stack(
        title="Megatron-LM of 2022",
        source="arXiv 2205.05198: sequence parallelism, selective recomputation, nothing overlapped but one gather",
        attention="unfused",
        pipeline_hidden=False,
        data_hidden=False,
    ),
    "megatron_deepspeed": Stack(
        title="BigScience's Megatron-DeepSpeed",
        source="BLOOM chronicle: TP 4, PP 12, ZeRO 1, attention in steps, BF16 optimizer with FP32 accumulation",
        attention="unfused",
        async_backward=False,
        gathers_again=False,
        fused_accumulation=False,
        pipeline_hidden=False,
        data_hidden=False,
        sums_whole=True,  # DeepSpeed's BF16 optimizer and its pipeline engine
    ),
    "llm_foundry": Stack(
        title="MosaicML llm-foundry",
        source="llm-foundry scripts/train/benchmarking/README.md: PyTorch FSDP, FlashAttention, full recomputation",
        attention="flash",
        gradient_bytes=2,
        stops_early=True,  # in images with PyTorch 2.1 (sweep.sh); the table says where
        fused_accumulation=False,
        precisions=("bf16", "fp8"),
        dropout=False,
    ),
    "llm_foundry_2023": Stack(
        title="MosaicML llm-foundry on A100",
        source="llm-foundry scripts/train/benchmarking/README.md: as on H100, with FlashAttention by Triton",
        attention="flash",
        gradient_bytes=2,
        stops_early=True,  # in images with PyTorch 2.1 (sweep.sh); the table says where
        fused_accumulation=False,
        precisions=("bf16", "fp8"),
        dropout=False,
    ),
    "fms_fsdp": Stack(
        title="IBM fms-fsdp",
        source="fms-fsdp README.md and policies/mixed_precision.py: PyTorch FSDP, compiled, gradients summed in BF16",
        attention="flash",
        separate_projections=True,
        compiled=True,
        gradient_bytes=2,
        fused_accumulation=False,
        dropout=False,
    ),
    "torchtitan": Stack(
        title="torchtitan",
        source="torchtitan benchmarks/ and parallelize_llama.py at 9dec370: FSDP2, compiled blocks, asynchronous TP",
        attention="flash",
        async_backward=False,
        separate_projections=True,
        fp8_parameters=True,  # cast before they are gathered, on the device that has them
        compiled=True,
        gathers_again=False,  # what was gathered is kept, or made again with the rest
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
"""By name."""
