"""Compute the time that passes of a block, of the embedding and of the output take on one device, by kind of
operation."""

from collections.abc import Iterable

from benchmark.planning.step_model.fp8_operands import cast_work, gathers_fp8, sums_of_products
from benchmark.planning.step_model.machine_constants import Rates
from benchmark.planning.step_model.memory_formula import ACCUMULATOR_BYTES
from benchmark.planning.step_model.operation_times import (
    attention_s,
    elementwise_s,
    exposed_s,
    gather_s,
    matmul_s,
    maximum_s,
)
from benchmark.planning.step_model.step_time import StepTime
from benchmark.planning.step_model.workload import Workload
from model.decoder_sizes import INTO_ATTENTION, INTO_MLP, BlockProduct

MOST_HIDING = 0.9
"""Largest share of products beside which tensor-parallel messages travel."""


ForwardBackward = tuple[StepTime, StepTime]
"""Seconds of a forward and of a backward pass."""


def block_passes(work: Workload, rates: Rates) -> ForwardBackward:
    """Return the passes of one block and micro-batch on one device."""
    stack = work.code
    forward_products, backward_matmul, accumulation = _linear_layers(work, rates)
    forward_matmul = sum(forward_products.values())
    forward_attention, backward_attention = _attention(work, rates)
    forward_elementwise, backward_elementwise = _elementwise(work, rates)
    casts = _weight_casts(work, rates)
    repeated_casts = 0.0
    if work.makes_operands:
        passes = cast_work(work, layer_sizes(work))
        casts, backward_casts, repeated_casts = (part.seconds(rates) for part in passes)
        backward_elementwise += backward_casts
    forward_messages, backward_messages = _tensor_messages(work, rates, forward_matmul, backward_matmul)
    context_messages = _context_messages(work, rates, forward_attention)
    forward_messages += context_messages
    backward_messages += 2 * context_messages
    recomputed = 0.0
    repeated_s = sum(forward_products[name] for name in _repeated_products(work, forward_products))
    if work.layout.recompute == "selective" and stack.remakes:
        recomputed = repeated_s + forward_elementwise + _repeated_messages(work, rates, repeated_s)
    elif work.layout.recompute == "selective":
        recomputed = 0.5 * forward_elementwise  # activations and norms
    elif work.layout.recompute == "full":
        recomputed = repeated_s + forward_attention + forward_elementwise + (0 if work.makes_operands else casts)
        recomputed += _repeated_messages(work, rates, repeated_s)
    recomputed += repeated_casts
    forward = StepTime(forward_matmul, forward_attention, forward_elementwise + casts, 0.0, forward_messages)
    backward_elementwise += accumulation
    backward = StepTime(backward_matmul, backward_attention, backward_elementwise, recomputed, backward_messages)
    host_s = rates.stack.host_ms_per_block * 1e-3
    return (
        _with_losses(_at_least(forward, host_s / 3), rates),
        _with_losses(_at_least(backward, host_s * 2 / 3), rates),
    )


def _at_least(time: StepTime, host_s: float) -> StepTime:
    return time + StepTime(host=max(0.0, host_s - time.total))


def _with_losses(time: StepTime, rates: Rates) -> StepTime:
    return time + StepTime(losses=time.total * rates.stack.losses / (1 - rates.stack.losses))


def _linear_layers(work: Workload, rates: Rates) -> tuple[dict[str, float], float, float]:
    """Return the seconds of the forward products by layer, of the backward products, and of separate kernels that add
    up gradients."""
    rows, fp8 = work.tokens, work.fp8
    forward: dict[str, float] = {}
    backward = accumulation = 0.0
    for name, (inputs, outputs) in layer_sizes(work).items():
        forward[name] = matmul_s(rates, (rows, outputs, inputs), fp8=fp8)
        backward += matmul_s(rates, (rows, inputs, outputs), fp8=fp8)
        product_s, added_s = _weight_gradient(work, rates, inputs, outputs)
        backward, accumulation = backward + product_s, accumulation + added_s
    return forward, backward, accumulation


def _weight_gradient(work: Workload, rates: Rates, inputs: int, outputs: int) -> tuple[float, float]:
    """Return the seconds of a weight gradient's product, and of the kernel that adds it up."""
    extra_bytes, added = _sums(work, inputs * outputs)
    fp8 = work.fp8 and work.layout.fp8_weight_gradients
    product_s = matmul_s(rates, (inputs, outputs, work.tokens), fp8=fp8, extra=extra_bytes)
    return product_s, elementwise_s(rates, added, 1) if added else 0.0


def last_weight_gradient_s(work: Workload, rates: Rates) -> float:
    """Return the seconds of the weight gradient that a backward pass of this repository computes after the gradient of
    its input was sent on: that of a block's first product."""
    return sum(_weight_gradient(work, rates, *next(iter(layer_sizes(work).values()))))


def _sums(work: Workload, weights: int) -> tuple[float, float]:
    """Return the bytes by which a weight gradient's product sums FP32 gradients, and those of a kernel of its own that
    does it in the product's place."""
    if work.makes_operands and work.layout.fp8_weight_gradients:
        return sums_of_products(work, weights)
    if work.sums_each_pass:  # FP32 results travel, and are added by shard
        return ACCUMULATOR_BYTES * weights, 3 * ACCUMULATOR_BYTES * weights / work.layout.shards
    if work.code.fused_accumulation:
        return 2 * ACCUMULATOR_BYTES * weights, 0.0
    return 0.0, (2 + 2 * ACCUMULATOR_BYTES) * weights if _accumulates(work) else 0.0


def layer_sizes(work: Workload) -> dict[str, tuple[int, int]]:
    """Return the inputs and outputs of each matrix product of a block on one device, by the columns that it computes.
    This repository joins those of the same input, in BF16 if their shards have equal rows
    (model/passes/linear/joined_weight.py); others join or separate them."""
    model = work.model
    joins = work.fp8 or not work.code.ours or _even_shards(work)
    products = [*(model.joined_products if joins else model.products).values()]
    if work.code.separate_projections:
        products = [
            BlockProduct(product.inputs, {role: width})
            for product in products
            for role, width in product.columns.items()
        ]
    return {"_".join(product.columns): product.on_rank(work.layout.tensor_parallel) for product in products}


def _even_shards(work: Workload) -> bool:
    """Return whether all shards of the weights that products of one input have are of equal rows."""
    columns, apart = work.model.columns, work.layout.tensor_parallel * work.layout.shards
    return not any(columns(role) % apart for role in (*INTO_ATTENTION, *INTO_MLP))


def _repeated_products(work: Workload, layers: Iterable[str]) -> list[str]:
    """Return the linear layers whose products the backward pass repeats."""
    stack = work.code
    if work.layout.recompute == "selective":
        return [name for name in layers if name in stack.remakes.get(work.precision, ())]
    return [name for name in layers if name != "down" or not stack.stops_early]


def _repeated_messages(work: Workload, rates: Rates, beside_s: float) -> float:
    """Return the exposed seconds of tensor-parallel messages that recomputation sends again: two gathers and, if whole
    blocks are recomputed, their scatters. After the last product, a recomputation that stops early sends none."""
    gather, scatter = _gather_scatter(work, rates)
    scatters = 0
    if work.layout.recompute == "full":
        scatters = 1 if work.code.stops_early else 2
    return _exposed(work, rates, 2 * gather + scatters * scatter, beside_s)


def _weight_casts(work: Workload, rates: Rates) -> float:
    """Return the seconds of casting a block's weights for products in FP8: BF16 is read, FP8 and its transpose are
    written."""
    if not work.fp8:
        return 0.0
    moved = 4 * work.model.layer_matrix_weights / work.layout.tensor_parallel
    return rates.common.fp8_weight_casts * elementwise_s(rates, moved, 0)


def _accumulates(work: Workload) -> bool:
    return work.layout.micro_batches > 1 and work.layout.sharding != "fsdp"


def _attention(work: Workload, rates: Rates) -> tuple[float, float]:
    model, layout = work.model, work.layout
    sequences, head = float(layout.micro_batch_size), model.head_size
    heads = model.num_attention_heads / (layout.tensor_parallel * layout.context_parallel)
    kind = work.code.attention
    times = attention_s(rates, sequences=sequences, heads=heads, seq=model.seq_length, head=head, kind=kind)
    return times[0] / rates.stack.attention, times[1] / rates.stack.attention


def _elementwise(work: Workload, rates: Rates) -> tuple[float, float]:
    """Return the seconds of the forward and the backward elementwise kernels."""
    forward, backward = fused_bytes(work)
    if work.fp8 and not work.code.ours:  # inputs and gradients of four linear layers cast, and transposed for later
        model, tensor = work.model, work.layout.tensor_parallel
        width, inner = model.hidden_size, work.tokens * model.columns("up") / tensor
        cast = 4 * work.tokens * (width / 1 + width / tensor) + 4 * 2 * inner
        cast *= work.code.fp8_passes * rates.common.fp8_casts / 2
        forward, backward = forward + cast, backward + cast
    factor = rates.stack.elementwise * _over_fused(work)
    return (
        elementwise_s(rates, forward * factor, round(6 * factor)),
        elementwise_s(rates, backward * factor, round(9 * factor)),
    )


def _over_fused(work: Workload) -> float:
    """Return the bytes of a block's elementwise kernels over those of fully fused ones."""
    if not work.code.ours:
        return 1.0
    return work.model.separate_kernels if "compiled-kernels" in work.without else work.model.compiled_kernels


def _bytes_of_loss(work: Workload) -> tuple[float, float]:
    """Return the bytes that losses and their gradient read and write for a logit in BF16."""
    if not work.code.ours:  # to FP32, largest, exponentials and their sum; then softmax less one, to BF16
        return 22.0, 10.0
    return (28.0, 14.0) if "compiled-kernels" in work.without else (2.0, 4.0)


def fused_bytes(work: Workload) -> tuple[float, float]:
    """Return the bytes of a block's forward and backward elementwise kernels, if each is as fused as can be. A BF16
    number that is read or written counts 2."""
    model, layout, tokens = work.model, work.layout, work.tokens
    tensor, width = layout.tensor_parallel, model.hidden_size
    shared = tensor if layout.sequence_parallel else 1
    hidden, inner = tokens * width / shared, tokens * model.columns("up") / tensor
    into_mlp, rotated = tokens * model.columns(*INTO_MLP) / tensor, tokens * model.columns("query", "key") / tensor
    mask = 1 if work.code.dropout else 0
    norms, residuals = 2 * 4 * hidden, 2 * (6 + mask) * hidden
    forward = norms + residuals + 2 * (into_mlp + inner)
    backward = 2 * 8 * hidden + 2 * (4 + mask) * hidden + 2 * (2 * into_mlp + inner)
    if model.rotary_positions:
        forward, backward = forward + 4 * rotated, backward + 4 * rotated
    if model.biases:
        backward += 2 * (tokens * 3 * width / tensor + inner + 2 * hidden)
    return forward, backward


def _tensor_messages(
    work: Workload, rates: Rates, forward_matmul: float, backward_matmul: float
) -> tuple[float, float]:
    """Return the exposed seconds of the forward and the backward pass. Each pass gathers and scatters the hidden state
    at attention and at the MLP; the backward pass may gather two of them again. Without sequence parallelism each pair
    is one all-reduce of the same bytes. Before a gather in FP8, this repository's ranks agree on a scale, and nothing
    hides that message."""
    stack, layout = work.code, work.layout
    gather, scatter = _gather_scatter(work, rates)
    repeated = 2 * gather if stack.gathers_again and layout.sequence_parallel else 0.0
    hidden = 2 * scatter + repeated if stack.async_backward else 0.0
    # a slot begins with a gather that no product hides, as the dry run counts
    first = gather / max(work.layers_of_stages) if stack.ours else 0.0
    agreement = 0.0
    if work.makes_operands and gathers_fp8(work):
        agreement = 2 * maximum_s(rates, ranks=layout.tensor_parallel, per_node=layout.devices_per_node)
    return (
        agreement + first + _exposed(work, rates, 2 * gather + 2 * scatter - first, forward_matmul),
        agreement
        + exposed_s(rates, hidden, share=1.0, beside_s=MOST_HIDING * backward_matmul)
        + _exposed(work, rates, 2 * gather + 2 * scatter + repeated - hidden, backward_matmul),
    )


def _gather_scatter(work: Workload, rates: Rates) -> tuple[float, float]:
    """Return the seconds to gather the hidden state over tensor-parallel devices, and to sum and scatter it."""
    layout, size = work.layout, 2.0 * work.tokens * work.model.hidden_size
    halved = 2 if gathers_fp8(work) else 1
    gather, scatter = (
        gather_s(rates, message_bytes, ranks=layout.tensor_parallel, stride=1, per_node=layout.devices_per_node)
        for message_bytes in (size / halved, size)
    )
    return gather, scatter


def _exposed(work: Workload, rates: Rates, messages_s: float, products_s: float) -> float:
    """Return the exposed seconds of tensor-parallel messages beside products; to hide them, user buffers and split
    products need NVLink."""
    near = work.layout.tensor_parallel <= work.layout.devices_per_node
    share = rates.stack.tensor_hidden if near else 0.0
    return exposed_s(rates, messages_s, share=share, beside_s=MOST_HIDING * products_s)


def _context_messages(work: Workload, rates: Rates, attention_s: float) -> float:
    """Return the exposed seconds of keys and values that travel around the devices of a sequence, beside attention."""
    layout, model = work.layout, work.model
    size = 2.0 * 2 * layout.micro_batch_size * model.seq_length * model.columns("key") / layout.tensor_parallel
    ring = gather_s(
        rates, size, ranks=layout.context_parallel, stride=layout.tensor_parallel, per_node=layout.devices_per_node
    )
    return exposed_s(rates, ring, share=1.0, beside_s=attention_s)


def embedding_passes(work: Workload, rates: Rates) -> ForwardBackward:
    """Return the passes of the embedding on the first pipeline stage: rows are looked up, positions added, gradients
    summed."""
    size = work.tokens * work.model.hidden_size / work.layout.tensor_parallel
    forward = elementwise_s(rates, 8 * size, 3)
    scatter = _gather_scatter(work, rates)[1] if work.code.ours else 0.0  # exposed, as the dry run counts
    return (StepTime(elementwise=forward, tensor_messages=scatter), StepTime(elementwise=2 * forward))


def output_passes(work: Workload, rates: Rates) -> ForwardBackward:
    """Return the passes of the output on the last pipeline stage: the logits' products and their loss, in FP32, on this
    device's columns."""
    model, layout = work.model, work.layout
    columns, width = -(-model.padded_vocab_size // layout.tensor_parallel), model.hidden_size
    sizes = work.tokens, columns, width
    accumulated, added = _sums(work.blocks_in_bf16, columns * width) if work.code.fused_accumulation else (0.0, 0.0)
    forward = matmul_s(rates, sizes)
    rows, columns, inputs = sizes
    backward = matmul_s(rates, (rows, inputs, columns))
    backward += matmul_s(rates, (inputs, columns, rows), extra=accumulated)
    of_loss, of_gradient = _bytes_of_loss(work)
    loss = elementwise_s(rates, of_loss * rows * columns, 8)
    gradient = elementwise_s(rates, of_gradient * rows * columns + added, 3)
    size = 2.0 * work.tokens * width
    gather = scatter = gather_s(rates, size, ranks=layout.tensor_parallel, stride=1, per_node=layout.devices_per_node)
    if work.code.ours:  # in a pipeline another pass hides the gather, as the dry run counts
        gather = _exposed(work, rates, gather, forward) if layout.pipeline_parallel > 1 else gather
        scatter = _exposed(work, rates, scatter, backward)
    return (
        _with_losses(StepTime(matmul=forward, elementwise=loss, tensor_messages=gather), rates),
        _with_losses(StepTime(matmul=backward, elementwise=gradient, tensor_messages=scatter), rates),
    )
