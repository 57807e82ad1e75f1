"""Passes through chunks of a model: the whole by autograd against one chunk, two and three.

With tensor parallelism: tests/benchmark/training/engine/test_pipeline.py.
"""

import copy
from collections.abc import Iterator
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from model.architectures import architecture_of
from model.decoder_sizes import DecoderSizes, Recompute
from model.gpt3 import mean_loss, token_losses
from model.gpt3_config import GPT3Config
from model.llama31_config import Llama31Config
from model.passes.chunk_pass import ChunkPass, MicroBatch
from model.passes.end_passes import sequence_first
from model.passes.tensor_group import Passing, TensorGroup, run_together
from model.sharding import names_of_chunk
from tests.model.passes.on_mesh import draw, one_process, spread

B, S, H, V = 2, 8, 12, 20
SIZES = GPT3Config(num_layers=3, hidden_size=H, num_attention_heads=2, seq_length=S, vocab_size=V, padded_vocab_size=V)
LLAMA = Llama31Config(3, 16, 8, S, V, V, num_key_value_heads=2, ffn_hidden_size=18)
BOTH = pytest.mark.parametrize("sizes", [SIZES, LLAMA], ids=["gpt3", "llama31"])
MICRO_BATCHES = 3
TABLE = "embedding.word_embeddings.weight"
TOLERANCE = 2e-6
"""Of losses and, relative to the largest of a parameter, gradients, all in FP32."""


@cache
def plain_model(sizes: DecoderSizes = SIZES) -> nn.Module:
    model = architecture_of(sizes).plain(sizes)
    for number, parameter in enumerate(model.parameters()):
        parameter.data.copy_(0.2 * draw(*parameter.shape, seed=number))
    return model


def batch_of(micro_batch: int, *, all_masked: bool = False) -> MicroBatch:
    """Of each another number of tokens counts; of the second, one."""
    random = torch.Generator().manual_seed(micro_batch)
    tokens, labels = torch.randint(V, (2, B, S), generator=random)
    mask = (torch.rand(B, S, generator=random) < 0.7).float()
    if micro_batch == 1 or all_masked:
        mask.zero_()
        mask[0, 2] = float(not all_masked)
    return MicroBatch(tokens, labels, mask)


def by_autograd(sizes: DecoderSizes = SIZES) -> tuple[list[float], dict[str, Tensor]]:
    """Losses, each divided by the number of micro-batches, and the gradients of their sum."""
    model = copy.deepcopy(plain_model(sizes))
    losses = []
    for number in range(MICRO_BATCHES):
        batch = batch_of(number)
        loss = mean_loss(token_losses(model(batch.tokens), batch.labels), batch.loss_mask) / MICRO_BATCHES
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(loss.item())
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return losses, gradients


class _DividedModel:
    """The model on this rank of a mesh, divided into chunks of this process."""

    def __init__(
        self,
        mesh: DeviceMesh,
        chunks: int,
        recompute: Recompute = "none",
        *,
        bf16: bool = False,
        sizes: DecoderSizes = SIZES,
        least_weights: int | None = None,
    ) -> None:
        names, row = [name for name, _ in plain_model(sizes).named_parameters()], architecture_of(sizes)
        self.states = []
        for number in range(chunks):  # each with a copy of its own
            parameters = spread(plain_model(sizes), mesh, row)
            chunk_names = names_of_chunk(names, row, sizes.num_layers, number, chunks)
            self.states.append({name: parameters[name] for name in chunk_names})
        group = TensorGroup(mesh["tensor"])
        self.chunks = [
            ChunkPass(state, sizes, group, bf16=bf16, batch=B, recompute=recompute, least_weights=least_weights)
            for state in self.states
        ]
        self.gather()

    def gather(self) -> None:
        for chunk in self.chunks:
            chunk.begin_gather()

    def for_chunk(self, chunk: ChunkPass, batch: MicroBatch) -> MicroBatch | None:
        """Return the micro-batch for the first and the last chunk."""
        return batch if chunk in (self.chunks[0], self.chunks[-1]) else None

    def train(self, batch: MicroBatch, *, last: bool = False) -> Passing[Tensor]:
        """The loss of a micro-batch, the ``last`` of a step."""
        out: Tensor | None = None
        activations = []
        for chunk in self.chunks:
            out, of_chunk = yield from chunk.forward_to_train(out, self.for_chunk(chunk, batch), 1 / MICRO_BATCHES)
            activations.append(of_chunk)
        handed_on: list[Tensor] = []
        gradient: Tensor | None = None
        for chunk in reversed(self.chunks):
            yield from chunk.backward(activations.pop(), gradient, handed_on.append, last=last)
            gradient = handed_on.pop() if chunk is not self.chunks[0] else None
        assert not handed_on
        assert out is not None
        return out

    def evaluate(self, batch: MicroBatch) -> Passing[Tensor]:
        """Losses [T]."""
        out: Tensor | None = None
        for chunk in self.chunks:
            out = yield from chunk.forward(out, self.for_chunk(chunk, batch))
        assert out is not None
        return out

    def step(self, *, together: bool = False) -> tuple[list[float], dict[str, Tensor]]:
        """Losses, and gradients whole, summed over both copies of the table."""
        passes = [self.train(batch_of(number), last=number == MICRO_BATCHES - 1) for number in range(MICRO_BATCHES)]
        losses = run_together(*passes) if together else [run_together(micro_batch)[0] for micro_batch in passes]
        gradients: dict[str, Tensor] = {}
        for chunk in self.chunks:
            for group in chunk.groups:
                group.begin_reduce_replicas()
            for group in chunk.groups:
                group.end_reduce()
        for state in self.states:
            for name, parameter in state.items():
                assert isinstance(parameter.grad, DTensor)
                gradient = parameter.grad.full_tensor().clone()
                gradients[name] = gradients[name] + gradient if name in gradients else gradient
        return [loss.item() for loss in losses], gradients


def assert_as_by_autograd(results: tuple[list[float], dict[str, Tensor]], sizes: DecoderSizes = SIZES) -> None:
    losses, gradients = by_autograd(sizes)
    assert results[0] == pytest.approx(losses, abs=TOLERANCE)
    assert results[1].keys() == gradients.keys()
    for name, gradient in gradients.items():
        atol = TOLERANCE * float(gradient.abs().max())
        torch.testing.assert_close(results[1][name], gradient, rtol=0, atol=atol)


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    with one_process() as mesh:
        yield mesh


@pytest.mark.parametrize("chunks", [1, 2, 3])
@pytest.mark.parametrize("recompute", ["none", "full"])
@BOTH
def test_losses_and_gradients_are_those_of_autograd(
    sizes: DecoderSizes, chunks: int, recompute: Recompute, mesh: DeviceMesh
) -> None:
    divided = _DividedModel(mesh, chunks, recompute, sizes=sizes, least_weights=None if chunks == 2 else 1000)
    assert_as_by_autograd(divided.step(), sizes)
    divided.gather()
    assert_as_by_autograd(divided.step(together=True), sizes)


@pytest.mark.parametrize("chunks", [1, 2])
def test_losses_of_an_evaluation_are_those_of_training(chunks: int, mesh: DeviceMesh) -> None:
    divided, batch = _DividedModel(mesh, chunks), batch_of(0)
    (loss,) = run_together(divided.train(batch))
    (losses,) = run_together(divided.evaluate(batch))
    mask_T = sequence_first(batch.loss_mask)
    assert losses.shape == (B * S,)
    assert ((losses * mask_T).sum() / mask_T.sum()).item() / MICRO_BATCHES == pytest.approx(loss.item(), abs=1e-6)


def test_values_are_read_after_they_have_been_gathered(mesh: DeviceMesh) -> None:
    """Changed weights, and with them the gains that are kept beside them, count from the next gathering on."""
    divided, batch = _DividedModel(mesh, 2, bf16=True), batch_of(0)
    before, again = (run_together(divided.evaluate(batch))[0] for _ in range(2))
    with torch.no_grad():
        for state in divided.states:
            for name, parameter in state.items():
                if "norm" in name:
                    parameter.to_local().add_(1)
    not_yet = run_together(divided.evaluate(batch))[0]
    divided.gather()
    after = run_together(divided.evaluate(batch))[0]
    assert torch.equal(before, again)
    assert torch.equal(before, not_yet)
    model = copy.deepcopy(plain_model())
    with torch.no_grad():
        for name, plain in model.named_parameters():
            if "norm" in name:
                plain.add_(1)
        expected = sequence_first(token_losses(model(batch.tokens), batch.labels))
    assert (after - before).abs().max() > 0.1
    torch.testing.assert_close(after, expected, rtol=0, atol=0.1)


def test_a_micro_batch_in_which_nothing_counts_has_no_loss(mesh: DeviceMesh) -> None:
    """As by autograd: the mean of no losses is not a number."""
    (loss,) = run_together(_DividedModel(mesh, 1).train(batch_of(0, all_masked=True)))
    assert loss.isnan()
