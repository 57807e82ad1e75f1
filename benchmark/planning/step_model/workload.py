"""Sizes of a step and its layout, from which its time follows for any code."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmark.config.number_formats import NUMBER_FORMATS, Precision
from benchmark.config.system_config import System
from benchmark.planning.step_model.stacks import STACKS, Feature, Sharding, Stack
from benchmark.training.engine.pipeline_order import PipelineShape
from model.decoder_sizes import DecoderSizes, Recompute
from model.passes.pass_sizes import terms_together

TIMED_FORMATS: tuple[Precision, ...] = ("bf16", "fp8")
"""Number formats whose products have machine constants; FP16 is computed at BF16's speed."""


@dataclass(frozen=True)
class Layout:
    """Number of devices, and how the model and the batch are divided among them."""

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
    shard_gradients: bool = False
    """True if gradients are summed over data-parallel devices after each micro-batch."""
    recompute: Recompute = "none"
    sequence_parallel: bool = True
    """True if tensor-parallel devices also share the operations between the linear layers."""
    fp8_weight_gradients: bool = True
    """True if weight gradients of a step in FP8 are products of FP8 numbers, too."""

    @property
    def data_parallel(self) -> int:
        return self.devices // (self.tensor_parallel * self.pipeline_parallel * self.context_parallel)

    @property
    def micro_batches(self) -> int:
        """Micro-batches of one device in a step."""
        return self.global_batch_size // (self.micro_batch_size * self.data_parallel)

    @property
    def shards(self) -> float:
        """Number of devices over which the optimizer's state, or all state, is sharded."""
        return self.data_parallel * self.context_parallel / self.replicas


@dataclass(frozen=True)
class Workload:
    """A step of any code: model, layout, precision, machine and stack."""

    model: DecoderSizes
    layout: Layout
    precision: Precision
    accelerator: str
    """Name in the table of machine constants."""
    stack: str
    """Name in stacks.py."""
    network_gbit_s: float | None = None
    """Gbit/s of a device's card to other nodes, each way; None means the accelerator's usual rate."""
    without: tuple[Feature, ...] = ()
    """Messages that the stack can hide, but does not hide here; kernels that it compiles, but not here."""
    bf16_layers: tuple[int, int] = (0, 0)
    """Blocks at the beginning and at the end of the model that stay in BF16 in an FP8 step."""

    @property
    def fp8(self) -> bool:
        """True if the linear layers of the blocks multiply numbers of 8 bits."""
        return NUMBER_FORMATS[self.precision].product_bits == 8

    @property
    def makes_operands(self) -> bool:
        """True if kernels of their own make the FP8 operands of products, as this repository's do."""
        return self.fp8 and self.code.ours

    @property
    def sums_each_pass(self) -> bool:
        """True if this repository's devices sum gradients after each micro-batch, and keep their shards' alone."""
        return self.code.ours and self.layout.shard_gradients and self.layout.shards > 1

    @property
    def blocks_in_bf16(self) -> "Workload":
        """The same step with all blocks in BF16."""
        return replace(self, precision="bf16", bf16_layers=(0, 0)) if self.fp8 else self

    @property
    def fp8_layers_of_stages(self) -> list[int]:
        """Return the layers in FP8 of each pipeline stage."""
        begin, end = self.bf16_layers[0], self.model.num_layers - self.bf16_layers[1]
        counts = []
        for first, last in itertools.pairwise(itertools.accumulate(self.layers_of_stages, initial=0)):
            counts.append(max(0, min(last, end) - max(first, begin)) if self.fp8 else 0)
        return counts

    @property
    def code(self) -> Stack:
        return STACKS[self.stack]

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch on one device."""
        return self.layout.micro_batch_size * self.model.seq_length // self.layout.context_parallel

    @property
    def layers_of_stages(self) -> list[int]:
        """Return the layers of each pipeline stage. The first stages get the remainder (as in model/sharding.py),
        unless the stack counts embedding and output as a layer each and the layers then divide evenly."""
        layers, stages = self.model.num_layers, self.layout.pipeline_parallel * self.layout.pipeline_chunks
        share, remainder = divmod(layers, stages)
        if remainder and self.code.ends_count and (layers + 2) % stages == 0:
            counts = [(layers + 2) // stages] * stages
            counts[0], counts[-1] = counts[0] - 1, counts[-1] - 1
            return counts
        return [share + (stage < remainder) for stage in range(stages)]

    @property
    def parameters_of_device(self) -> float:
        """Number of parameters on the device that has most: its blocks, and a table at an end of the pipeline."""
        layout, model = self.layout, self.model
        tables = 1 if layout.pipeline_parallel > 1 or model.tied else 2
        return self.block_weights_of_device + tables * self.table_weights / layout.tensor_parallel

    @property
    def block_weights_of_device(self) -> float:
        """Number of weights in the blocks' matrices on the device that has most."""
        return self._weights_of_device(self.layers_of_stages)

    @property
    def fp8_weights_of_device(self) -> float:
        """The same of blocks in FP8."""
        return self._weights_of_device(self.fp8_layers_of_stages)

    @property
    def turn(self) -> int | None:
        """Number of consecutive backward passes through a model chunk; None: all of a step."""
        return PipelineShape(self.layout.pipeline_parallel, 0, self.layout.pipeline_chunks).turn

    @property
    def weight_terms(self) -> int:
        """Number of FP8 products that this repository adds to a weight's gradient at once."""
        if self.sums_each_pass:
            return 1
        weights = max(self.layers_of_stages) * self.model.layer_matrix_weights / self.layout.tensor_parallel
        return terms_together(weights, self.turn)

    def _weights_of_device(self, layers_of_stages: Sequence[int]) -> float:
        pipeline = self.layout.pipeline_parallel
        layers = max(sum(layers_of_stages[rank::pipeline]) for rank in range(pipeline))
        return layers * self.model.layer_matrix_weights / self.layout.tensor_parallel

    @property
    def table_weights(self) -> int:
        """Number of elements in the table of the embedding, or of the output."""
        return self.model.padded_vocab_size * self.model.hidden_size


def workload_of(
    model: DecoderSizes,
    global_batch_size: int,
    system: System,
    *,
    stack: str,
    precision: Precision,
    network_gbit_s: float | None = None,
    bf16_layers: tuple[int, int] = (0, 0),
) -> Workload:
    """Return the step of a model on a system."""
    code = STACKS[stack]
    shards_all = code.sharding == "fsdp" and system.pipeline_parallel == 1
    without: tuple[Feature, ...] = ("compiled-kernels",) if code.ours and not system.compiled_kernels else ()
    layout = Layout(
        devices=system.num_devices,
        devices_per_node=system.devices_per_node,
        global_batch_size=global_batch_size,
        micro_batch_size=system.micro_batch_size,
        tensor_parallel=system.tensor_parallel,
        pipeline_parallel=system.pipeline_parallel,
        pipeline_chunks=system.pipeline_chunks,
        sharding="fsdp" if shards_all else "zero1",
        replicas=system.replicas,
        shard_gradients=system.shard_gradients,
        recompute=system.recompute,
        fp8_weight_gradients=system.fp8_weight_gradients or not code.ours,
    )
    return Workload(model, layout, precision, system.accelerator, stack, network_gbit_s, without, bf16_layers)
