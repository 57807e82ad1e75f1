"""Compute a device's memory at the peak of a step by formula, for other stacks and for searches among many layouts.

For this repository's own code ``plan`` counts it by the dry run. For ten layouts of Llama 3.1 8B without a pipeline the
formula is 1.6 % below to 3 % above the dry run, and 22 % above it with tensor parallel 8 and full recomputation. In FP8
it is 1.6 to 2.7 % above it for four of them, with weight gradients of either format.
"""

from dataclasses import dataclass

from benchmark.planning.step_model.pipeline_events import shape_of_device
from benchmark.planning.step_model.workload import Workload
from benchmark.training.engine.pipeline_order import most_in_flight
from model.decoder_sizes import INTO_ATTENTION, INTO_MLP
from model.passes.pass_sizes import LARGEST_PRODUCT, LARGEST_TILE

MASTER_AND_MOMENTS = 12
"""Bytes per parameter: FP32 weight and Adam's two moments."""
ACCUMULATOR_BYTES = 4
"""Bytes of a gradient in the buffer to which micro-batches add."""


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes by kind on the device that needs most, without CUDA's context, NCCL's buffers and gaps."""

    weights: float
    """Bytes of the BF16 weights used in the computation."""
    gradients: float
    optimizer: float
    """Bytes of the optimizer's state, master weights included."""
    activations: float
    """Bytes kept for backward passes, over all micro-batches in flight."""
    workspace: float
    """Bytes that a pass needs while it runs: gathered sequences, recomputed tensors, logits."""

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.activations + self.workspace


def memory_need(work: Workload) -> MemoryNeed:
    """Return the need of the pipeline's first device, which has most micro-batches in flight, or of its last, which has
    the logits, whichever is larger."""
    layout, model, numbers = work.layout, work.model, work.parameters_of_device
    if layout.sharding == "fsdp":
        held = (2 * model.layer_matrix_weights + work.table_weights) / layout.tensor_parallel
        weights, gradients = 2 * held, ACCUMULATOR_BYTES * (numbers / layout.shards + held / 2)
    else:
        weights, gradients = 2 * numbers, ACCUMULATOR_BYTES * _gradients_in_memory(work)
    if work.makes_operands and layout.fp8_weight_gradients:  # products that wait to be added together
        gradients += 2 * (work.weight_terms - 1) * work.fp8_weights_of_device / layout.pipeline_chunks
    workspace = 8.0 * work.tokens * model.hidden_size + 4 * work.tokens * model.columns("up") / layout.tensor_parallel
    if layout.recompute == "full":
        workspace += kept_per_block(work, recompute="none")
    if layout.pipeline_parallel == 1:
        logits = work.tokens * model.padded_vocab_size / layout.tensor_parallel
        if work.code.logits_tiles:
            loss = 6.0 * work.tokens * model.hidden_size + min(2 * logits, LARGEST_PRODUCT)
            workspace = max(workspace, loss + min(4 * logits, LARGEST_TILE))
        else:
            workspace += 10 * logits
    if work.code.keeps_summed:
        gradients += ACCUMULATOR_BYTES * numbers / layout.shards
    return MemoryNeed(
        weights,
        gradients,
        MASTER_AND_MOMENTS * numbers / layout.shards,
        _blocks_in_flight(work) * _mean_kept_per_block(work),
        workspace + work.code.temporary_bytes,
    )


def _gradients_in_memory(work: Workload) -> float:
    """Return the number of gradients that a device holds before their sum over data-parallel devices."""
    if not work.sums_each_pass:
        return work.parameters_of_device
    if work.layout.pipeline_parallel > 1:
        return work.parameters_of_device / work.layout.pipeline_chunks
    return work.table_weights / work.layout.tensor_parallel  # as the last block's activations are still kept


def _blocks_in_flight(work: Workload) -> float:
    """Return the blocks' forward passes whose backward passes are still to come, on the first device."""
    layout = work.layout
    devices, chunks = layout.pipeline_parallel, layout.pipeline_chunks
    layers = sum(work.layers_of_stages[::devices]) / chunks  # of a chunk, in the mean
    if devices == 1:
        # Two micro-batches alternate while messages travel; a block's selective backward pass has six of them where a
        # forward pass has four, so that a third of the blocks is held twice.
        alternating = work.code.merged_slots and layout.tensor_parallel > 1 and layout.recompute == "selective"
        return layers * (4 / 3 if alternating and layout.micro_batches > 1 else 1)
    passes = most_in_flight(shape_of_device(0, devices, chunks, merged=work.code.merged_slots))
    return layers * min(passes, layout.micro_batches * chunks)


def _mean_kept_per_block(work: Workload) -> float:
    """Return the bytes that a block of the first device keeps, in the mean of those in FP8 and those in BF16."""
    devices = work.layout.pipeline_parallel
    layers, fp8_layers = (sum(counts[::devices]) for counts in (work.layers_of_stages, work.fp8_layers_of_stages))
    share = fp8_layers / layers
    return share * kept_per_block(work) + (1 - share) * kept_per_block(work.blocks_in_bf16)


def kept_per_block(work: Workload, recompute: str | None = None) -> float:
    """Return the bytes that a block keeps of a micro-batch on a device, after arXiv 2205.05198, section 4.

    Per token and number of the hidden state, in BF16: inputs of two norms 4, inputs of the linear layers 2 + 2 + 2 + 8.
    Queries, keys and values take 6, the input of GELU 8, each of two dropout masks 1.
    """
    model, layout, stack = work.model, work.layout, work.code
    recompute = layout.recompute if recompute is None else recompute
    H, shared = model.hidden_size, layout.tensor_parallel if layout.sequence_parallel else 1
    if recompute == "full":
        return 2.0 * work.tokens * H / shared
    inner, into_mlp, heads = (
        model.columns(*roles) / layout.tensor_parallel for roles in (("up",), INTO_MLP, INTO_ATTENTION)
    )
    norms, masks = 4 * H / shared, (2 * H / shared if stack.dropout else 0)
    attention = 2 * heads + 2 * H / layout.tensor_parallel
    inputs = 0.0  # selective recomputation makes the results of norms and activations again
    if recompute == "none" and work.makes_operands and layout.fp8_weight_gradients:
        # their transposes in FP8, of attention's output, too: it is not the operand itself
        inputs = 2 * H + inner + H / layout.tensor_parallel
    elif recompute == "none":
        inputs = 4 * H / (1 if stack.keeps_gathered else shared) + 2 * inner
    return work.tokens * (norms + masks + attention + 2 * into_mlp + inputs)
