"""Published training speeds of large dense transformers: what a model of a step is compared with, and may be fitted to.

What is not a step time is turned into one by model FLOPs, counted in one way for all
(:meth:`PublishedModel.train_flops_per_token`).
"""

from dataclasses import dataclass
from functools import cached_property

from benchmark.config.accelerators import ACCELERATORS

PRECISION_FACTORS = {"bf16": 1.0, "fp16": 1.0, "fp8": 2.0, "mxfp8": 2.0}
"""Peak of the matrix units as a multiple of the dense BF16 peak (NVIDIA's data sheets of A100, H100, H200, B200)."""
MEASURED_KINDS = {
    "step_s": "seconds of a training step",
    "tokens_per_s_per_device": "trained tokens per second and device",
    "tflops_per_device": "model TFLOP/s per device, no recomputation counted",
    "tflops_per_device_with_recompute": "TFLOP/s per device, a second forward pass of all blocks counted",
    "mfu": "model FLOP/s over the dense BF16 peak",
}
SHARDINGS = ("none", "zero1", "zero2", "fsdp")
RECOMPUTES = ("none", "selective", "full")


@dataclass(frozen=True)
class PublishedModel:
    """Sizes of a decoder-only transformer."""

    name: str
    layers: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int
    """Rows of the output projection as the stack pads it, where that is known."""
    kv_heads: int
    """Less than ``heads``: grouped-query attention."""
    ffn_hidden: int
    gated: bool
    """SwiGLU: three projections in the MLP instead of two."""
    tied: bool
    """One table for input and output."""

    @property
    def train_flops_per_token(self) -> float:
        """Forward and backward FLOPs of a trained token, nothing recomputed.

        12 L H^2 (1 + K/A) for query, key, value and output projections, K of A heads being keys; 12 L H S for scores
        and values, the whole square counted; 12 L H F for an MLP of two projections, 18 L H F of three; 6 H V for the
        logits. For GPT-3 this is 72 L H^2 (1 + S/6H + V/12LH) (docs/facts/peers.md 1.0).
        """
        return self.layers * self.block_flops_per_token + 6 * self.hidden * self.vocabulary

    @property
    def block_flops_per_token(self) -> float:
        """Of one block, forward and backward."""
        attention = 12 * self.hidden**2 * (1 + self.kv_heads / self.heads) + 12 * self.hidden * self.sequence
        return attention + 6 * (3 if self.gated else 2) * self.hidden * self.ffn_hidden

    @property
    def parameters(self) -> float:
        """Weights of the matrices and tables; norms, biases and learned positions, below 0.1 %, are left out."""
        attention = 2 * self.hidden**2 * (1 + self.kv_heads / self.heads)
        mlp = (3 if self.gated else 2) * self.hidden * self.ffn_hidden
        return self.layers * (attention + mlp) + (1 if self.tied else 2) * self.vocabulary * self.hidden


@dataclass(frozen=True)
class ResultSource:
    """Where figures were read, so that others can open it."""

    name: str
    title: str
    url: str
    read: str
    """Which part of it, and how."""


@dataclass(frozen=True)
class PublishedResult:
    """One measured speed of a model on so many devices."""

    id: str
    source: ResultSource
    stack: str
    accelerator: str
    """A name in ``ACCELERATORS``."""
    devices: int
    devices_per_node: int
    network: str
    network_gbps: float
    """Gb/s of one device to other nodes, one way; 0: one node."""
    model: PublishedModel
    precision: str
    global_batch_size: int
    """Sequences per step."""
    micro_batch_size: int
    tensor_parallel: int
    context_parallel: int
    pipeline_parallel: int
    pipeline_chunks: int
    """Model chunks per pipeline rank; 1: not interleaved."""
    data_parallel: int
    sharding: str
    recompute: str
    sequence_parallel: bool
    kind: str
    """What was measured; a key of ``MEASURED_KINDS``."""
    value: float
    switches: tuple[str, ...] = ()
    """What the stack had switched on that changes speed."""
    inferred: tuple[str, ...] = ()
    """Fields that the source does not say; the note says why they are what they are."""
    run_min: float | None = None
    """Minutes of the whole run, where it was one; with the next four from the same log."""
    steps: int | None = None
    evaluations: int | None = None
    evaluation_s: float | None = None
    init_s: float | None = None
    power_limit_w: float | None = None
    """Where the devices did not run at their maker's limit."""
    note: str = ""
    doubt: str = ""
    """Why the figure may be wrong, such as its neighbours in the same table; backtests list such rows apart."""
    unseen: bool = False
    """Whether it was added after the constants were fitted and the model was last changed; never used for fitting."""

    @property
    def micro_batches(self) -> int:
        """Per pipeline and step."""
        return self.global_batch_size // (self.micro_batch_size * self.data_parallel)

    @property
    def tokens_per_step(self) -> int:
        return self.global_batch_size * self.model.sequence

    @property
    def flops_per_step(self) -> float:
        """Model FLOPs."""
        return self.tokens_per_step * self.model.train_flops_per_token

    @cached_property
    def step_s(self) -> float:
        """Seconds of a step: as measured, or by tokens, or by :attr:`flops_per_step`."""
        if self.kind == "step_s":
            return self.value
        if self.kind == "tokens_per_s_per_device":
            return self.tokens_per_step / (self.value * self.devices)
        flops = self.flops_per_step
        if self.kind == "tflops_per_device_with_recompute":
            flops += self.tokens_per_step * self.model.layers * self.model.block_flops_per_token / 3
        tflops = self.value * self._peak_tflops if self.kind == "mfu" else self.value
        return flops / (tflops * 1e12 * self.devices)

    @property
    def tflops_per_device(self) -> float:
        """Model TFLOP/s of one device."""
        return self.flops_per_step / (self.step_s * self.devices * 1e12)

    @property
    def mfu(self) -> float:
        """Model FLOP/s over the dense BF16 peak, whatever the precision."""
        return self.tflops_per_device / self._peak_tflops

    @property
    def share_of_peak(self) -> float:
        """Model FLOP/s over the peak of the precision that the block's products ran in."""
        return self.mfu / PRECISION_FACTORS[self.precision]

    @property
    def _peak_tflops(self) -> float:
        return ACCELERATORS[self.accelerator].peak_tflops
