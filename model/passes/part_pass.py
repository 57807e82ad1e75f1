"""Forward and backward passes through a part of the model: consecutive blocks, with the ends that belong to it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from model.architectures import architecture_of
from model.decoder_sizes import DecoderSizes, Recompute
from model.passes.block_pass import BlockPass, KeptBlock
from model.passes.end_passes import EmbeddingPass, OutputPass, sequence_first
from model.passes.part_parameters import PartParameters
from model.passes.tensor_group import ForwardWatch, Passing, Pending, TensorGroup
from model.passes.whole_parameter import WholeParameter


@dataclass(frozen=True)
class PartBatch:
    """The ends of the model need these tensors of a micro-batch, on the device; the blocks between need none."""

    tokens_BS: Tensor | None = None
    """Token ids, for the embedding."""
    labels_BS: Tensor | None = None
    """Labels of the losses."""
    mask_BS: Tensor | None = None
    """1 for a label whose loss counts, 0 for another, FP32."""


@dataclass(slots=True)
class KeptPart:
    """Values that the backward pass through a part starts from."""

    blocks: list[KeptBlock]
    tokens_BS: Tensor | None
    output_gradient_tH: Tensor | None
    """Gradient of the last block's output, if the part has the model's output."""


class PartPass:
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
        self.parameters = PartParameters(list(parameters.values()))
        self._arriving = False

    def begin_gather(self) -> None:
        """Begin to collect the values of all parameters, which the next forward pass waits for. Collective."""
        self.parameters.begin_gather()
        self._arriving = True

    def forward(self, x: Tensor | None, batch: PartBatch) -> Passing[Tensor]:
        """Without a backward pass: from tokens, or the hidden state ``x`` [t, H], to the hidden state, or the losses
        [T], FP32, in the order of ``sequence_first``."""
        hidden, _ = yield from self._blocks_forward(x, batch, keep=False)
        if self._output is None:
            return hidden
        assert batch.labels_BS is not None
        return (yield from self._output.losses(hidden, sequence_first(batch.labels_BS)))

    def forward_to_train(
        self, x: Tensor | None, batch: PartBatch, weight_of_loss: float
    ) -> Passing[tuple[Tensor, KeptPart]]:
        """The same, and what the backward pass needs: of ``weight_of_loss`` times the mean of the losses that count,
        which is what is returned in the place of losses, a scalar."""
        hidden, blocks = yield from self._blocks_forward(x, batch, keep=True)
        kept = KeptPart(blocks, batch.tokens_BS if self._embedding is not None else None, None)
        if self._output is None:
            return hidden, kept
        assert batch.labels_BS is not None and batch.mask_BS is not None
        mask_T = sequence_first(batch.mask_BS)
        weights_T = mask_T * (weight_of_loss / mask_T.sum())
        labels_T = sequence_first(batch.labels_BS)
        losses_T, gradient = yield from self._output.losses_and_gradient(hidden, labels_T, weights_T)
        kept.output_gradient_tH = gradient
        return (losses_T * weights_T).sum(), kept

    def backward(
        self,
        kept: KeptPart,
        gradient_tH: Tensor | None,
        hand_on: Callable[[Tensor], None],
    ) -> Passing[None]:
        """Add to the parameters' gradients.

        ``gradient_tH``: of the part's output, None where that is the loss. ``hand_on`` is given the gradient of the
        part's input while a weight gradient is still to be computed.
        """
        gradient = kept.output_gradient_tH if gradient_tH is None else gradient_tH
        assert gradient is not None

        def send(gradient: Tensor) -> Pending:
            hand_on(gradient)
            return Pending(gradient)

        whole = self._group.gather(gradient)
        for number in range(len(self.blocks) - 1, -1, -1):
            block = self.blocks[number]
            to_next = send if number == 0 and self._embedding is None else self._group.gather
            gradient, whole = yield from block.backward(kept.blocks.pop(), gradient, whole, to_next)
        if self._embedding is not None:
            assert kept.tokens_BS is not None
            yield from self._embedding.backward(kept.tokens_BS, gradient, whole)

    def _blocks_forward(
        self, x: Tensor | None, batch: PartBatch, *, keep: bool
    ) -> Passing[tuple[Tensor, list[KeptBlock]]]:
        if self._arriving:
            self._end_gather()
        if self._embedding is not None:
            assert batch.tokens_BS is not None
            x = yield from self._embedding.forward(batch.tokens_BS)
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
