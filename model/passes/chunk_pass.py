"""Forward and backward passes through a part of the model: consecutive blocks, with the ends that belong to it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from model.architectures import architecture_of
from model.decoder_sizes import DecoderSizes, Recompute
from model.passes.block_pass import BlockPass, ForwardWatch, KeptBlock
from model.passes.end_passes import EmbeddingPass, OutputPass, sequence_first
from model.passes.tensor_group import Passing, Pending, TensorGroup
from model.passes.whole_parameter import ChunkParameters, WholeParameter


@dataclass(frozen=True)
class MicroBatch:
    """The input of one forward pass, which the ends of the model need; the blocks between need none of it. All are
    [B, S]: tokens and labels int64, loss mask float32 with 0 or 1."""

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
class KeptChunk:
    """Values that the backward pass through a part starts from."""

    blocks: list[KeptBlock]
    batch: MicroBatch | None
    output_gradient_tH: Tensor | None
    """Gradient of the last block's output, if the part has the model's output."""


class ChunkPass:
    """Passes through one part of the model."""

    def __init__(
        self,
        state: Mapping[str, DTensor],
        config: DecoderSizes,
        group: TensorGroup,
        *,
        bf16: bool,
        batch: int,
        recompute: Recompute,
    ) -> None:
        """``state``: the part's parameters by their names in the model's plain page; ``group``: the tensor-parallel
        ranks; ``batch``: samples of a micro-batch."""
        self._group = group
        dtype = torch.bfloat16 if bf16 else torch.float32
        parameters = {name: WholeParameter(one, dtype) for name, one in state.items()}
        architecture = architecture_of(config)
        by_block: dict[str, dict[str, WholeParameter]] = {}
        for name, parameter in parameters.items():
            if name.startswith(architecture.layers):
                layer, inner = name.removeprefix(architecture.layers).split(".", 1)
                by_block.setdefault(layer, {})[inner] = parameter
        self.blocks = [
            BlockPass(architecture.block(own, self._group, config, batch), self._group, recompute)
            for own in by_block.values()
        ]
        self._embedding: EmbeddingPass | None = None
        if all(name in parameters for name in architecture.input_names):
            positions = None if architecture.positions is None else parameters[architecture.positions]
            self._embedding = EmbeddingPass(parameters[architecture.words], positions, self._group)
        self._output: OutputPass | None = None
        if all(name in parameters for name in architecture.output_names):
            norm = architecture.norm(parameters, architecture.final_norm)
            self._output = OutputPass(norm, parameters[architecture.output], self._group)
        self.parameters = ChunkParameters(list(parameters.values()))
        self._arriving = False

    def begin_gather(self) -> None:
        """Begin to collect the values of all parameters, which the next forward pass waits for. Collective."""
        self.parameters.begin_gather()
        self._arriving = True

    def forward(self, x: Tensor | None, batch: MicroBatch | None) -> Passing[Tensor]:
        """Without a backward pass: from tokens, or the hidden state ``x`` [t, H], to the hidden state, or the losses
        [T], FP32, in the order of ``sequence_first``."""
        hidden, _ = yield from self._blocks_forward(x, batch, keep=False)
        if self._output is None:
            return hidden
        assert batch is not None
        return (yield from self._output.losses(hidden, sequence_first(batch.labels)))

    def forward_to_train(
        self, x: Tensor | None, batch: MicroBatch | None, weight_of_loss: float
    ) -> Passing[tuple[Tensor, KeptChunk]]:
        """The same, and what the backward pass needs: of ``weight_of_loss`` times the mean of the losses that count,
        which is what is returned in the place of losses, a scalar."""
        hidden, blocks = yield from self._blocks_forward(x, batch, keep=True)
        kept = KeptChunk(blocks, batch, None)
        if self._output is None:
            return hidden, kept
        assert batch is not None
        mask_T = sequence_first(batch.loss_mask)
        weights_T = mask_T * (weight_of_loss / mask_T.sum())
        labels_T = sequence_first(batch.labels)
        losses_T, gradient = yield from self._output.losses_and_gradient(hidden, labels_T, weights_T)
        kept.output_gradient_tH = gradient
        return (losses_T * weights_T).sum(), kept

    def backward(
        self,
        kept: KeptChunk,
        gradient_tH: Tensor | None,
        hand_on: Callable[[Tensor], None],
    ) -> Passing[None]:
        """Add to the parameters' gradients.

        ``gradient_tH``: of the part's output, None where that is the loss. ``hand_on`` is given the gradient of the
        part's input while a weight gradient is still to be computed.
        """
        gradient = kept.output_gradient_tH if gradient_tH is None else gradient_tH
        assert gradient is not None
        kept.output_gradient_tH = None

        def send(gradient: Tensor) -> Pending:
            hand_on(gradient)
            return Pending(gradient)

        handed = [(gradient, self._group.gather(gradient))]
        """The gradient of the next block's output; in a list, so that the block frees it after its last use."""
        del gradient, gradient_tH
        for number in range(len(self.blocks) - 1, -1, -1):
            to_next = send if number == 0 and self._embedding is None else self._group.gather
            block_pass = self.blocks[number].backward(kept.blocks.pop(), *handed.pop(), to_next)
            handed.append((yield from block_pass))
        if self._embedding is not None:
            assert kept.batch is not None
            yield from self._embedding.backward(kept.batch.tokens, *handed.pop())

    def _blocks_forward(
        self, x: Tensor | None, batch: MicroBatch | None, *, keep: bool
    ) -> Passing[tuple[Tensor, list[KeptBlock]]]:
        if self._arriving:
            self._end_gather()
        if self._embedding is not None:
            assert batch is not None
            x = yield from self._embedding.forward(batch.tokens)
        assert x is not None
        kept_blocks = []
        for block in self.blocks:
            x, kept = yield from block.forward(x, keep=keep)
            if kept is not None:
                kept_blocks.append(kept)
        return x, kept_blocks

    def _end_gather(self) -> None:
        self.parameters.end_gather()
        for one in (*self.blocks, self._output):
            if one is not None:
                one.refresh()
        self._arriving = False

    def watch(self, watch: ForwardWatch) -> None:
        """Tell ``watch`` of the forward passes of all blocks."""
        for block in self.blocks:
            block.watch = watch
