"""Commands for other programs' checkpoints: to-huggingface, to-dcp, to-torch-dist, torch-dist-to-megatron."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from checkpoint_convert.commands.printed_outputs import print_converted, print_exported
from stage.limits.sizes import parse_bytes


@dataclass(frozen=True)
class ToHuggingfaceCommand:
    """Export the weights to Hugging Face's GPT-2 format.

    Example: python -m checkpoint_convert to-huggingface --input RUN_DIR/checkpoints/step_00000192 --output gpt3_hf
    --dtype bf16 --tokenizer sentencepiece.model
    """

    input: Path
    """A checkpoint in the Megatron zarr layout, or a run's own (RUN_DIR/checkpoints/step_XXXXXXXX)."""
    output: Path
    """Folder to write: config.json and safetensors shards. A list of MD5 sums and a manifest are written beside it."""
    dtype: Literal["fp32", "bf16"] = "fp32"
    """Of the weights that are written."""
    tokenizer: Path | None = None
    """SentencePiece model of kind BPE: written too, so that AutoTokenizer reads it."""
    heads: int | None = None
    """Attention heads; only needed where no manifest or config.json near the input tells."""
    workers: int = len(os.sched_getaffinity(0))
    """Processes that write; each holds a tensor or two."""
    force: bool = False
    """Replace what is there."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        from checkpoint_convert.export.to_huggingface import to_huggingface

        written = to_huggingface(
            self.input,
            self.output,
            heads=self.heads,
            dtype=self.dtype,
            tokenizer=self.tokenizer,
            workers=self.workers,
            force=self.force,
        )
        print_exported(self.output, written, self.json)


@dataclass(frozen=True)
class ToDcpCommand:
    """Export FP32 weights and moments to PyTorch's distributed checkpoint format.

    Example: python -m checkpoint_convert to-dcp --input ckpt4000_bf16 --output ckpt4000_dcp
    """

    input: Path
    """A checkpoint in the Megatron zarr layout."""
    output: Path
    """Folder to write. A list of MD5 sums and a manifest are written beside it."""
    workers: int = len(os.sched_getaffinity(0))
    """Processes that write; each holds a tensor or two."""
    force: bool = False
    """Replace what is there."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        from checkpoint_convert.export.to_dcp import to_dcp

        written = to_dcp(self.input, self.output, workers=self.workers, force=self.force)
        print_exported(self.output, written, self.json)


@dataclass(frozen=True)
class ToTorchDistCommand:
    """Export weights and moments to Megatron-Core's torch_dist, which its runs --load.

    Example: python -m checkpoint_convert to-torch-dist --input ckpt4000_bf16 --output ckpt4000_torch_dist
    """

    input: Path
    """A checkpoint in the Megatron zarr layout, or a run's own (RUN_DIR/checkpoints/step_XXXXXXXX)."""
    output: Path
    """Folder to write, with iter_XXXXXXX in it. A list of MD5 sums and a manifest are written beside it."""
    dtype: Literal["fp32", "bf16"] = "bf16"
    """Of the weights; the optimizer's copy and the moments are FP32."""
    workers: int = len(os.sched_getaffinity(0))
    """Processes that write; each holds two layers of an array."""
    force: bool = False
    """Replace what is there."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        from checkpoint_convert.export.to_torch_dist import to_torch_dist

        written = to_torch_dist(self.input, self.output, dtype=self.dtype, workers=self.workers, force=self.force)
        print_exported(self.output, written, self.json)


@dataclass(frozen=True)
class TorchDistToMegatronCommand:
    """Convert a checkpoint of Megatron-Core (torch_dist) to the Megatron zarr layout, from which a run starts.

    Example: python -m checkpoint_convert torch-dist-to-megatron --input SAVE_DIR --output ckpt_bf16 --dtype bf16
    """

    input: Path
    """What Megatron saved: the folder with latest_checkpointed_iteration.txt, or one iter_XXXXXXX."""
    output: Path
    """Folder to write. A list of MD5 sums and a manifest are written beside it."""
    dtype: Literal["fp32", "bf16"]
    """bf16 adds BF16 weights and keeps the FP32 ones as master weights; the moments are FP32 in both."""
    workers: int = len(os.sched_getaffinity(0))
    """Blocks converted at the same time."""
    memory_limit: str = "8GiB"
    """Bound on the blocks in memory."""
    force: bool = False
    """Replace what is there."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        from checkpoint_convert.conversion.torch_dist_to_megatron import torch_dist_to_megatron

        written = torch_dist_to_megatron(
            self.input,
            self.output,
            dtype=self.dtype,
            workers=self.workers,
            memory_limit=parse_bytes(self.memory_limit, "--memory-limit"),
            force=self.force,
        )
        print_converted(self.output, written, self.json)
