"""Sizes of a step and its layout, from which its time follows for any code."""

from dataclasses import dataclass
from typing import Literal

from benchmark.config.run_config import RunConfig
from benchmark.planning.step_model.stacks import STACKS, Feature, Sharding, Stack
from model.decoder_sizes import Recompute
from stage.errors import InputError

Number = Literal["bf16", "fp8"]
"""Number format of the linear layers' inputs; FP16 is computed at BF16's speed."""


@dataclass(frozen=True)
class Transformer:
    """Sizes of a dense decoder."""

    layers: int
    hidden: int
    heads: int
    seq: int
    vocab: int
    kv_heads: int = 0
    """Heads of keys and values; 0 means as many as of queries."""
    ffn_hidden: int = 0
    """Width between the MLP's two projections; 0 means four times the hidden size."""
    gated: bool = False
    """True if the MLP has a third, gating projection (SwiGLU), and the model has rotary positions and no biases."""
    tied: bool = True
    """True if embedding and output share their table."""

    @property
    def kv_width(self) -> int:
        return self.hidden // self.heads * (self.kv_heads or self.heads)

    @property
    def ffn_width(self) -> int:
        return self.ffn_hidden or 4 * self.hidden

    @property
    def block_weights(self) -> int:
        """Number of elements in a block's matrices."""
        mlp = (3 if self.gated else 2) * self.hidden * self.ffn_width
        return 2 * self.hidden * self.hidden + 2 * self.hidden * self.kv_width + mlp

    @property
    def flops_per_token(self) -> float:
        """Return the model FLOPs of forward and backward pass: 6 per weight of a matrix, and attention's whole S x S
        square; recomputation is not counted. For GPT-3 the figure equals model/flops.py's."""
        attention = 12 * self.layers * self.hidden * self.seq
        return 6.0 * (self.layers * self.block_weights + self.vocab * self.hidden) + attention


@dataclass(frozen=True)
class Layout:
    """Number of devices, and how the model and the batch are dealt out to them."""

    devices: int
    devices_per_node: int
    global_batch_size: int
    micro_batch_size: int
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    pipeline_chunks: int = 1
    context_parallel: int = 1
    """Devices that share each sequence."""
    sharding: Sharding = "zero1"
    replicas: int = 1
    """Copies of the state that is sharded over the data-parallel devices."""
    recompute: Recompute = "none"
    sequence_parallel: bool = True
    """True if tensor-parallel devices also share the operations between the linear layers."""

    @property
    def data_parallel(self) -> int:
        return self.devices // (self.tensor_parallel * self.pipeline_parallel * self.context_parallel)

    @property
    def micro_batches(self) -> int:
        """Micro-batches of one device in a step."""
        return self.global_batch_size // (self.micro_batch_size * self.data_parallel)

    @property
    def shards(self) -> float:
        """Number of devices over which the optimizer's state, or all state, is dealt out."""
        return self.data_parallel * self.context_parallel / self.replicas


@dataclass(frozen=True)
class Workload:
    """A step of any code: model, layout, precision, machine and stack."""

    model: Transformer
    layout: Layout
    precision: Number
    accelerator: str
    """Name in the table of machine constants."""
    stack: str
    """Name in stacks.py."""
    network_gbit_s: float | None = None
    """Gbit/s of a device's card to other nodes, each way; None means the accelerator's usual rate."""
    without: tuple[Feature, ...] = ()
    """Messages that the stack can hide, but does not hide here."""

    @property
    def code(self) -> Stack:
        return STACKS[self.stack]

    def require_precision(self) -> None:
        """Raise InputError if the stack does not have the precision."""
        if self.precision not in self.code.precisions:
            having = ", ".join(name for name, each in STACKS.items() if self.precision in each.precisions)
            raise InputError(
                f"stack {self.stack} has no {self.precision}, only {', '.join(self.code.precisions)}; stacks with "
                f"{self.precision}: {having}; change --precision or --stack"
            )

    @property
    def flops(self) -> float:
        """Model FLOPs of a step of all devices."""
        return self.layout.global_batch_size * self.model.seq * self.model.flops_per_token

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch on one device."""
        return self.layout.micro_batch_size * self.model.seq // self.layout.context_parallel

    @property
    def layers_of_stages(self) -> list[int]:
        """Return the layers of each pipeline stage. The first stages get the remainder (as model/sharding.py deals them
        out), unless the stack counts embedding and output as a layer each and the layers then divide evenly."""
        layers, stages = self.model.layers, self.layout.pipeline_parallel * self.layout.pipeline_chunks
        share, left_over = divmod(layers, stages)
        if left_over and self.code.ends_count and (layers + 2) % stages == 0:
            counts = [(layers + 2) // stages] * stages
            counts[0], counts[-1] = counts[0] - 1, counts[-1] - 1
            return counts
        return [share + (stage < left_over) for stage in range(stages)]

    @property
    def parameters_of_device(self) -> float:
        """Number of parameters on the device that has most: its blocks, and a table at an end of the pipeline."""
        layout, model, counts = self.layout, self.model, self.layers_of_stages
        blocks = max(sum(counts[rank :: layout.pipeline_parallel]) for rank in range(layout.pipeline_parallel))
        tables = 1 if layout.pipeline_parallel > 1 or model.tied else 2
        return (blocks * model.block_weights + tables * model.vocab * model.hidden) / layout.tensor_parallel


def workload_of(config: RunConfig, *, stack: str, precision: Number, network_gbit_s: float | None = None) -> Workload:
    """Return the step of a run's configuration; the vocabulary is the padded one, which is computed with."""
    model, system = config.benchmark.model, config.system
    transformer = Transformer(
        layers=model.num_layers,
        hidden=model.hidden_size,
        heads=model.num_attention_heads,
        seq=model.seq_length,
        vocab=model.padded_vocab_size,
    )
    shards_all = STACKS[stack].sharding == "fsdp" and system.pipeline_parallel == 1
    layout = Layout(
        devices=system.num_devices,
        devices_per_node=system.devices_per_node,
        global_batch_size=config.benchmark.global_batch_size,
        micro_batch_size=system.micro_batch_size,
        tensor_parallel=system.tensor_parallel,
        pipeline_parallel=system.pipeline_parallel,
        pipeline_chunks=system.pipeline_chunks,
        sharding="fsdp" if shards_all else "zero1",
        replicas=system.replicas,
        recompute=system.recompute,
    )
    return Workload(transformer, layout, precision, system.accelerator, stack, network_gbit_s)
