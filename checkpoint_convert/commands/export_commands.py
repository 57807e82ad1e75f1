"""Commands that write checkpoints for other programs: to-huggingface, to-torch-dist."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from checkpoint_convert.commands.conversion_commands import print_produced
from foundation.errors import InputError
from foundation.this_machine import count_cores


@dataclass(frozen=True)
class ToHuggingfaceCommand:
    """Export the weights to Hugging Face: GPT-3 as GPT-2, Llama 3.1 as Llama.

    Example: python -m checkpoint_convert to-huggingface --input RUN_DIR/checkpoints/step_00000192 --output gpt3_hf
    --dtype bf16 --tokenizer sentencepiece.model
    """

    input: Path
    """A checkpoint in the Megatron zarr layout, or a run's own (RUN_DIR/checkpoints/step_XXXXXXXX)."""
    output: Path
    """Folder to write: config.json and safetensors shards. A list of MD5 sums and a manifest are written beside it."""
    dtype: Literal["fp32", "bf16"] = "fp32"
    """Dtype of the written weights."""
    tokenizer: Path | None = None
    """SentencePiece model of kind BPE, or a tokenizer.json, to write as well, in the form that AutoTokenizer reads."""
    heads: int | None = None
    """Attention heads; only needed if no manifest or config.json beside the input gives them."""
    workers: int = count_cores()
    """Number of threads that write; each holds a tensor or two."""
    force: bool = False
    """Replace the output if this command made it."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        from checkpoint_convert.export.to_huggingface import to_huggingface

        if self.tokenizer is not None and not self.tokenizer.is_file():
            raise InputError(
                f"--tokenizer {self.tokenizer}: no such file; expected a SentencePiece model or tokenizer.json"
            )
        produced = to_huggingface(
            self.input,
            self.output,
            heads=self.heads,
            dtype=self.dtype,
            tokenizer=self.tokenizer,
            workers=self.workers,
            force=self.force,
        )
        print_produced(self.output, produced, self.json)


@dataclass(frozen=True)
class ToTorchDistCommand:
    """Export weights and moments to Megatron-Core's torch_dist, which its runs read with --load.

    Example: python -m checkpoint_convert to-torch-dist --input ckpt4000_bf16 --output ckpt4000_torch_dist
    """

    input: Path
    """A checkpoint in the Megatron zarr layout, or a run's own (RUN_DIR/checkpoints/step_XXXXXXXX)."""
    output: Path
    """Folder to write, with iter_XXXXXXX in it. A list of MD5 sums and a manifest are written beside it."""
    dtype: Literal["fp32", "bf16"] = "bf16"
    """Dtype of the weights; the optimizer's copy and the moments are FP32."""
    step: int | None = None
    """Adam's step; only needed where no common.pt in the input, or no config.json of its run, tells."""
    workers: int = count_cores()
    """Threads that write; each holds two layers of an array."""
    force: bool = False
    """Replace the output if this command made it."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        from checkpoint_convert.export.to_torch_dist import to_torch_dist

        produced = to_torch_dist(
            self.input, self.output, dtype=self.dtype, step=self.step, workers=self.workers, force=self.force
        )
        print_produced(self.output, produced, self.json)
