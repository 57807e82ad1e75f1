"""Forward and backward passes through a model chunk: consecutive blocks, with the ends that belong to them.

The parameters of a chunk travel in groups (parameter_group.py). In the first forward pass of a step, the values of a
group arrive while the blocks before it compute. In the last backward pass, its gradients are summed at that time.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from model.architectures import architecture_of
from model.decoder_sizes import DecoderSizes, Recompute
from model.passes.block_pass import BlockActivations, BlockPass, ForwardWatch
from model.passes.end_passes import EmbeddingPass, OutputPass, sequence_first
from model.passes.linear.fp8_weight import Fp8Weight, rescale
from model.passes.linear.linear_formats import LINEAR_FORMATS, LinearFormat
from model.passes.linear.raw_operand import OperandGather, RawOperand
from model.passes.parameter_group import GroupedLayer, ParameterGroup, grouped
from model.passes.tensor_group import Passing, Pending, TensorGroup
from model.passes.whole_parameter import WholeParameter


@dataclass(frozen=True)
class MicroBatch:
    """The input of one forward pass, for the embedding and the output. All are [B, S]: tokens and labels int64, loss
    mask float32 with 0 or 1."""

    tokens: Tensor
    labels: Tensor
    loss_mask: Tensor

    def to(self, device: torch.device) -> "MicroBatch":
        return MicroBatch(
            *(tensor.to(device, non_blocking=True) for tensor in (self.tokens, self.labels, self.loss_mask))
        )

    def pinned(self) -> "MicroBatch":
        """Return a copy in page-locked memory, from which a copy to a GPU does not wait."""
        return MicroBatch(*(tensor.pin_memory() for tensor in (self.tokens, self.labels, self.loss_mask)))


@dataclass(slots=True)
class ChunkActivations:
    """Values that the backward pass through a chunk starts from."""

    blocks: list[BlockActivations]
    batch: MicroBatch | None
    output_gradient_tH: Tensor | None
    """Gradient of the last block's output, if the chunk has the model's output."""


class ChunkPass:
    """Passes through one chunk of the model."""

    def __init__(
        self,
        state: Mapping[str, DTensor],
        sizes: DecoderSizes,
        group: TensorGroup,
        *,
        bf16: bool,
        batch: int,
        recompute: Recompute,
        least_weights: int | None = None,
        terms_together: int = 1,
        shard_gradients: bool = False,
        linear: Callable[[int], LinearFormat] = lambda _: "plain",
    ) -> None:
        """``state``: the chunk's parameters by their names in the model's plain page; ``group``: the tensor-parallel
        ranks; ``batch``: samples of a micro-batch; ``least_weights``: of a group of parameters, None for one group;
        ``terms_together``: FP8 products that are added to a weight's gradient at once; ``shard_gradients``: sum
        gradients over the ranks after each backward pass; ``linear``: the format of the linear layers of a block, by
        its number in the model."""
        self._group = group
        dtype = torch.bfloat16 if bf16 else torch.float32
        architecture = architecture_of(sizes)
        parameters: dict[str, WholeParameter] = {}
        by_block: dict[int, dict[str, WholeParameter]] = {}
        for name, parameter in state.items():
            if not name.startswith(architecture.layers):
                parameters[name] = WholeParameter(parameter, dtype)
                continue
            layer, inner = name.removeprefix(architecture.layers).split(".", 1)
            is_linear = parameter.dim() == 2
            whole = LINEAR_FORMATS[linear(int(layer))].weight if is_linear else WholeParameter
            by_block.setdefault(int(layer), {})[inner] = whole(parameter, dtype)
        self.blocks = [
            BlockPass(
                architecture.block(of_block, self._group, sizes, batch, LINEAR_FORMATS[linear(layer)].linear),
                self._group,
                recompute,
            )
            for layer, of_block in by_block.items()
        ]
        self._embedding: EmbeddingPass | None = None
        if all(name in parameters for name in architecture.input_names):
            positions = None if architecture.positions is None else parameters[architecture.positions]
            self._embedding = EmbeddingPass(parameters[architecture.words], positions, self._group)
        self._output: OutputPass | None = None
        if all(name in parameters for name in architecture.output_names):
            norm = architecture.norm(parameters, architecture.final_norm)
            self._output = OutputPass(norm, parameters[architecture.output], self._group)
        layers = [
            GroupedLayer(list(of_block.values()), block.refresh)
            for of_block, block in zip(by_block.values(), self.blocks, strict=True)
        ]
        of_embedding = () if self._embedding is None else architecture.input_names
        if self._output is not None:
            of_output = [parameters[name] for name in architecture.output_names if name not in of_embedding]
            layers.append(GroupedLayer(of_output, self._output.refresh))
        # The embedding computes too little to hide a message behind it.
        layers[0].parameters[:0] = [parameters[name] for name in of_embedding]
        self._groups_of_layers = grouped(layers, least_weights)
        """The groups of the blocks and, behind them, of the output."""
        self.groups = list(dict.fromkeys(self._groups_of_layers))
        """The groups of the chunk's parameters, in the order of the forward pass."""
        for weight in self.fp8_weights:
            weight.terms_together = terms_together
        self._shards_gradients = shard_gradients
        self._summing: ParameterGroup | None = None
        """The group whose gradients are being summed, if that is done after each backward pass."""
        if shard_gradients:
            for whole_parameter in itertools.chain.from_iterable(layer.parameters for layer in layers):
                whole_parameter.scatter_each_pass()

    def begin_gather(self) -> None:
        """Begin to collect the values of all parameters, for which the next forward pass waits. Collective."""
        rescale(self.fp8_weights)
        self.groups[0].begin_gather()

    @property
    def fp8_weights(self) -> list[Fp8Weight]:
        """Weights whose scales are to be found before they are gathered."""
        return [weight for block in self.blocks for weight in block.fp8_weights]

    def forward(self, x: Tensor | None, batch: MicroBatch | None) -> Passing[Tensor]:
        """Run a forward pass without a backward pass, from tokens or the hidden state ``x`` [t, H]. Return the hidden
        state or, of the last chunk, the losses [T], FP32, in the order of ``sequence_first``."""
        hidden, _ = yield from self._blocks_forward(x, batch, keep=False)
        if self._output is None:
            return hidden
        assert batch is not None
        return (yield from self._output.losses(hidden, sequence_first(batch.labels)))

    def forward_to_train(
        self, x: Tensor | None, batch: MicroBatch | None, weight_of_loss: float
    ) -> Passing[tuple[Tensor, ChunkActivations]]:
        """Return the hidden state, and the values that the backward pass needs.

        A chunk with the model's output returns a scalar instead of losses: ``weight_of_loss`` times the mean of the
        losses that count. The backward pass is that of this scalar.
        """
        hidden, blocks = yield from self._blocks_forward(x, batch, keep=True)
        activations = ChunkActivations(blocks, batch, None)
        if self._output is None:
            return hidden, activations
        assert batch is not None
        mask_T = sequence_first(batch.loss_mask)
        weights_T = mask_T * (weight_of_loss / mask_T.sum())
        labels_T = sequence_first(batch.labels)
        losses_T, gradient = yield from self._output.losses_and_gradient(hidden, labels_T, weights_T)
        activations.output_gradient_tH = gradient
        return (losses_T * weights_T).sum(), activations

    def backward(
        self,
        activations: ChunkActivations,
        gradient_tH: Tensor | None,
        hand_on: Callable[[Tensor], None],
        *,
        last: bool = False,
        ends_turn: bool = True,
    ) -> Passing[None]:
        """Add to the parameters' gradients.

        ``gradient_tH``: of the chunk's output, None where that is the loss. ``hand_on`` is given the gradient of the
        chunk's input while a weight gradient is still to be computed. ``last``: of a step; the sum of a group's
        gradients over all ranks begins as soon as they are complete. ``ends_turn``: terms of gradients do not wait for
        the next micro-batch.
        """
        gradient = activations.output_gradient_tH if gradient_tH is None else gradient_tH
        assert gradient is not None
        activations.output_gradient_tH = None

        def send(gradient: RawOperand) -> OperandGather:
            hand_on(gradient.tensor)
            return OperandGather(Pending(gradient.tensor))

        gather_input_gradient = partial(OperandGather.of, group=self._group) if self._embedding is not None else send
        gathers = [gather_input_gradient, *(block.gather_gradient for block in self.blocks)]
        """Functions that begin to gather the gradient of each block's input and, last, of the chunk's output."""
        of_output = [(gradient, gathers[-1](RawOperand(gradient)))]
        """The gradient of the next block's output; in a list, so that the block frees it after its last use."""
        del gradient, gradient_tH
        group = self.groups[-1]
        for number in reversed(range(len(self.blocks))):
            if self._groups_of_layers[number] is not group:
                self._begin_reduce(group, last=last)
            group = self._groups_of_layers[number]
            block_pass = self.blocks[number].backward(activations.blocks.pop(), *of_output.pop(), gathers[number])
            of_output.append((yield from block_pass))
            if ends_turn:
                for weight in self.blocks[number].fp8_weights:
                    weight.add_terms()
        if self._embedding is not None:
            assert activations.batch is not None
            gradient_tH, gradient_gather = of_output.pop()
            yield from self._embedding.backward(activations.batch.tokens, gradient_tH, gradient_gather.pending)
        self._begin_reduce(group, last=last)

    def _begin_reduce(self, group: ParameterGroup, *, last: bool) -> None:
        if self._shards_gradients:
            self._end_scatter()  # so that the gradients of two groups at most are in memory
            self._summing = group
        if self._shards_gradients or last:
            group.begin_reduce(last=last)

    def _end_scatter(self) -> None:
        if self._summing is not None:
            self._summing.end_scatter()
            self._summing = None

    def _blocks_forward(
        self, x: Tensor | None, batch: MicroBatch | None, *, keep: bool
    ) -> Passing[tuple[Tensor, list[BlockActivations]]]:
        self.groups[0].end_gather()
        if self._embedding is not None:
            assert batch is not None
            x = yield from self._embedding.forward(batch.tokens)
        assert x is not None
        block_activations = []
        for number, (block, group) in enumerate(zip(self.blocks, self._groups_of_layers, strict=False)):
            group.end_gather()
            if number == len(self.blocks) // 2:  # the message has ended; soon most memory is needed
                self._end_scatter()
            x, activations = yield from block.forward(x, keep=keep)
            if activations is not None:
                block_activations.append(activations)
        self.groups[-1].end_gather()
        return x, block_activations

    def watch(self, watch: ForwardWatch) -> None:
        """Have ``watch`` observe the forward passes of all blocks."""
        for block in self.blocks:
            block.watch = watch
