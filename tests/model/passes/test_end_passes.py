"""Embedding and output against the plain model's by autograd, in FP64: parameters' gradients alone are FP32 sums."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from model.fused_kernel import FusedKernel, run_by
from model.gpt3 import GPT3
from model.gpt3_config import GPT3Config
from model.passes import end_passes
from model.passes.end_passes import EmbeddingPass, OutputPass, sequence_first
from model.passes.gpt3_block import NormPass
from model.passes.softmax_loss import softmax_gradient, softmax_losses
from model.passes.tensor_group import TensorGroup, run_together
from model.passes.whole_parameter import WholeParameter
from tests.benchmark.tiny import in_processes
from tests.model.passes.on_mesh import (
    GPT3_ROW,
    draw,
    mesh_of,
    one_process,
    own_part,
    sequence_first_rows,
    spread,
    sum_over_ranks,
    whole_parameters,
)

RANKS = 2
WORDS, FINAL_NORM = GPT3_ROW.words, GPT3_ROW.final_norm
POSITIONS = "embedding.position_embeddings.weight"
B, S, H, V = 2, 8, 6, 20
SIZES = GPT3Config(
    num_layers=1,
    hidden_size=H,
    num_attention_heads=2,
    seq_length=S,
    vocab_size=V,
    padded_vocab_size=V,
    max_position_embeddings=S + 3,  # the last positions are never used
)
TILES = ((1, 1), (3, 1), (16, 1), (3, 3), (8, 2), (16, 16))
"""Numbers of logits tiles and of products: for the 16 tokens at once; for 6, 6 and 4; one by one."""
MICRO_BATCHES = 2

Numbers = dict[str, Tensor]


@cache
def plain_model() -> GPT3:
    model = GPT3(SIZES).double()
    for number, parameter in enumerate(model.parameters()):
        parameter.data.copy_(draw(*parameter.shape, seed=number))
    return model


def tokens_of(micro_batch: int) -> tuple[Tensor, Tensor]:
    """Tokens and labels [B, S]. Those of the second are all in the last quarter of the table."""
    tokens = torch.randint(V, (2, B, S), generator=torch.Generator().manual_seed(micro_batch))
    tokens = tokens if micro_batch == 0 else tokens % (V // 4) + V - V // 4
    return tokens[0], tokens[1]


def weights_of(micro_batch: int) -> Tensor:
    """Of each token's loss, [B, S]: some do not count, and of the second micro-batch no token of a sample does."""
    weights = torch.rand(B, S, dtype=torch.float64, generator=torch.Generator().manual_seed(50 + micro_batch))
    weights[0, 3:5] = 0
    if micro_batch == 1:
        weights[1] = 0
    return weights


def gradients_of(names: tuple[str, ...]) -> Numbers:
    plain, results = dict(plain_model().named_parameters()), {}
    for name in names:
        gradient = plain[name].grad
        assert gradient is not None
        results[name] = gradient.clone()
    return results


def embedding_by_autograd() -> Numbers:
    plain_model().zero_grad()
    results = {}
    for number in range(MICRO_BATCHES):
        hidden = plain_model().embedding(tokens_of(number)[0])
        hidden.backward(draw(B, S, H, seed=100 + number))
        results[f"hidden state {number}"] = sequence_first_rows(hidden.detach())
    return results | gradients_of((WORDS, POSITIONS))


def output_by_autograd() -> Numbers:
    plain_model().zero_grad()
    plain, results = plain_model(), {}
    for number in range(MICRO_BATCHES):
        x = draw(B, S, H, seed=200 + number).requires_grad_()
        logits = F.linear(plain.encoder.final_layernorm(x), plain.embedding.word_embeddings.weight)
        losses = F.cross_entropy(logits.flatten(0, 1), tokens_of(number)[1].flatten(), reduction="none").view(B, S)
        (losses * weights_of(number)).sum().backward()  # type: ignore[no-untyped-call]
        assert x.grad is not None
        results[f"losses {number}"] = sequence_first(losses.detach())
        results[f"input gradient {number}"] = sequence_first_rows(x.grad)
    return results | gradients_of((WORDS, f"{FINAL_NORM}.weight", f"{FINAL_NORM}.bias"))


class _Ends:
    """Both ends on this rank of a mesh; of what is cut, numbers are this rank's part."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self.mesh, self.group = mesh, TensorGroup(mesh["tensor"])
        self.model = spread(plain_model(), mesh)

    def own_rows(self, x_BSH: Tensor) -> Tensor:
        return sequence_first_rows(x_BSH).chunk(self.group.size)[self.group.rank]

    def largest_tile(self, tiles: int, itemsize: int = 4) -> int:
        """Return the bytes with which the logits of all tokens are so many tiles."""
        return math.ceil(itemsize * B * S * V / self.group.size / tiles)

    def embedding(self) -> tuple[Numbers, dict[str, WholeParameter]]:
        parameters = whole_parameters(self.model, torch.float64)
        embedding, results = EmbeddingPass(parameters[WORDS], parameters[POSITIONS], self.group), Numbers()
        for number in range(MICRO_BATCHES):
            tokens = tokens_of(number)[0]
            (results[f"hidden state {number}"],) = run_together(embedding.forward(tokens))
            upstream = self.own_rows(draw(B, S, H, seed=100 + number))
            run_together(embedding.backward(tokens, upstream, self.group.gather(upstream)))
        return results | self._summed(parameters, "embedding"), parameters

    def output(self, tiles: int, products: int = 1) -> tuple[Numbers, dict[str, WholeParameter]]:
        parameters = whole_parameters(self.model, torch.float64)
        output, results = OutputPass(NormPass(parameters, FINAL_NORM), parameters[WORDS], self.group), Numbers()
        output.refresh()
        for number in range(MICRO_BATCHES):
            x_tH = self.own_rows(draw(B, S, H, seed=200 + number))
            labels_T, weights_T = (sequence_first(one) for one in (tokens_of(number)[1], weights_of(number)))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(end_passes, "LARGEST_TILE", self.largest_tile(tiles))
                patch.setattr(end_passes, "LARGEST_PRODUCT", self.largest_tile(products, 8))
                ((losses, gradient),) = run_together(output.losses_and_gradient(x_tH, labels_T, weights_T))
                (alone,) = run_together(output.losses(x_tH, labels_T))
            torch.testing.assert_close(alone, losses, rtol=0 if products == 1 else 1e-14, atol=0)
            results[f"losses {number}"], results[f"input gradient {number}"] = losses, gradient
        return results | self._summed(parameters, "embedding.word", "encoder.final"), parameters

    def _summed(self, parameters: dict[str, WholeParameter], *prefixes: str) -> Numbers:
        """Gradients of those whose names begin so."""
        own = {name: one for name, one in parameters.items() if name.startswith(prefixes)}
        gradients = {name: one.gradient for name, one in own.items()}
        sum_over_ranks(own.values())
        return {name: gradient.clone() for name, gradient in gradients.items()}

    def differences(self, ours: Numbers, parameters: dict[str, WholeParameter], theirs: Numbers) -> dict[str, float]:
        """Largest ones, relative to the largest number."""
        assert ours.keys() == theirs.keys()
        results = {}
        for name, value in ours.items():
            expected = theirs[name]
            if name in parameters:
                expected = own_part(expected, parameters[name], self.mesh)
            elif not name.startswith("losses"):
                expected = expected.chunk(self.group.size)[self.group.rank]
            assert value.shape == expected.shape
            results[name] = float((value - expected).abs().max() / expected.abs().max())
        return results


def assert_close(differences: dict[str, float]) -> None:
    for name, difference in differences.items():
        assert difference < (1e-12 if name[-1].isdigit() else 3e-7), (name, difference)


def _compare(mesh: DeviceMesh) -> dict[str, dict[str, float]]:
    ends = _Ends(mesh)
    results = {"embedding": ends.differences(*ends.embedding(), embedding_by_autograd())}
    expected = output_by_autograd()
    for tiles, products in TILES:
        results[f"{tiles} tiles, {products} products"] = ends.differences(*ends.output(tiles, products), expected)
    return results


def _by_operators(kernel: FusedKernel[Any, Any], arguments: Sequence[Any]) -> Any:
    """The functions that a GPU compiles, uncompiled."""
    return kernel.function(*arguments)


BOTH_WAYS = pytest.mark.parametrize("way", [nullcontext, partial(run_by, _by_operators)], ids=["stored", "again"])
"""Exponentials are stored, or computed again as compiled kernels do."""
Way = Callable[[], AbstractContextManager[None]]


def _on_two_ranks(way: Way) -> dict[str, dict[str, float]]:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    with way():
        return _compare(mesh_of(tensor=RANKS))


def assert_all_close(compared: dict[str, dict[str, float]]) -> None:
    for part, differences in compared.items():
        assert len(differences) == (MICRO_BATCHES + 2 if part == "embedding" else 2 * MICRO_BATCHES + 3)
        assert_close(differences)


@BOTH_WAYS
def test_numbers_are_those_of_autograd(way: Way) -> None:
    with one_process() as mesh, way():
        assert_all_close(_compare(mesh))


@BOTH_WAYS
def test_two_ranks_compute_what_one_does(way: Way) -> None:
    for on_rank in in_processes(RANKS, _on_two_ranks, way):
        assert_all_close(on_rank)


def test_logits_are_no_larger_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the logits of a token: tiles are of a whole number of tokens."""
    sizes: list[int] = []

    def noting(logits_TV: Tensor, *rest: Any) -> Any:
        sizes.append(logits_TV.numel() * 4)
        return softmax_losses(logits_TV, *rest)

    monkeypatch.setattr(end_passes, "softmax_losses", noting)
    with one_process() as mesh:
        ends = _Ends(mesh)
        for tiles in (1, 2, 3, 5, 7, 16):
            sizes.clear()
            ends.output(tiles)
            assert max(sizes) < ends.largest_tile(tiles) + V * 4
            assert sum(sizes) == 2 * MICRO_BATCHES * B * S * V * 4  # to train, and alone


def test_the_table_gets_one_product_however_many_tiles_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []

    def note_rows(_: WholeParameter, gradient: Tensor, __: Tensor) -> None:
        rows.append(len(gradient))

    monkeypatch.setattr(WholeParameter, "add_product", note_rows)
    with one_process() as mesh:
        ends = _Ends(mesh)
        for tiles, products, rows_of_products in ((16, 1, [16]), (16, 2, [8, 8]), (3, 3, [6, 6, 4])):
            rows.clear()
            ends.output(tiles, products)
            assert rows == MICRO_BATCHES * rows_of_products


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-6), (torch.bfloat16, 3e-2)]
)
@BOTH_WAYS
def test_token_losses_and_their_gradient(way: Way, dtype: torch.dtype, tolerance: float) -> None:
    logits, labels, upstream = draw(32, 50, seed=1).to(dtype), torch.arange(32), draw(32, seed=2).abs()
    leaf = logits.double().requires_grad_()
    expected = F.cross_entropy(leaf, labels, reduction="none")
    (gradient,) = torch.autograd.grad(expected, leaf, upstream)
    with way():
        losses, softmax = softmax_losses(logits.detach().clone(), labels, None)
        assert losses.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        results = softmax_gradient(softmax, upstream.to(losses.dtype))
    assert results.dtype == dtype
    torch.testing.assert_close(losses.double(), expected.detach(), rtol=min(tolerance, 2e-6), atol=min(tolerance, 2e-6))
    torch.testing.assert_close(results.double(), gradient, rtol=tolerance, atol=tolerance)


@BOTH_WAYS
def test_losses_of_large_logits_do_not_overflow(way: Way) -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0], [-3e4, -3e4, -3e4]])
    with way():
        losses, _ = softmax_losses(logits.clone(), torch.tensor([0, 1]), None)
    torch.testing.assert_close(losses, torch.tensor([0.0, 1.0986123]))
