"""A block's passes against the plain block by autograd, in FP64: parameters' gradients alone are FP32 sums."""

import weakref
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from model.architectures import ARCHITECTURES
from model.decoder_sizes import DecoderSizes, Recompute
from model.gpt3 import Block
from model.gpt3_config import GPT3Config
from model.llama31 import LlamaBlock
from model.llama31_config import Llama31Config
from model.passes.block_pass import BlockPass, ForwardWatch
from model.passes.linear.linear_pass import PlainLinear
from model.passes.linear.raw_operand import OperandGather, RawOperand
from model.passes.tensor_group import Passing, Pending, TensorGroup, result_of, run_together
from tests.benchmark.tiny import in_processes
from tests.model.passes.held_bytes import held_bytes
from tests.model.passes.on_mesh import draw, mesh_of, one_process, own_part, sequence_first_rows, spread, sum_over_ranks
from tests.model.passes.on_mesh import whole_parameters as gathered

RANKS = 2
S, H, HEADS = 8, 12, 2  # of two tensor-parallel ranks each has one head
SIZES = GPT3Config(
    num_layers=1, hidden_size=H, num_attention_heads=HEADS, seq_length=S, vocab_size=10, padded_vocab_size=10
)
LLAMA = Llama31Config(1, 16, 8, S, 10, 10, num_key_value_heads=2, ffn_hidden_size=18)
BOTH = pytest.mark.parametrize("sizes", [SIZES, LLAMA], ids=["gpt3", "llama31"])
RECOMPUTE: tuple[Recompute, ...] = get_args(Recompute)
LAST_GRADIENT = "self_attention.query_key_value.weight"
MICRO_BATCHES = 2


@cache
def plain_block(sizes: DecoderSizes = SIZES) -> nn.Module:
    block = (Block(sizes) if isinstance(sizes, GPT3Config) else LlamaBlock(sizes)).double()  # type: ignore[arg-type]
    for number, parameter in enumerate(block.parameters()):
        parameter.data.copy_((0.3 * draw(*parameter.shape, seed=number)).float())
    return block


def example(batch: int, sequence: int, micro_batch: int, width: int = H) -> tuple[Tensor, Tensor]:
    """Input and gradient of the output, [B, S, H]."""
    return draw(batch, sequence, width, seed=100 + micro_batch), draw(batch, sequence, width, seed=200 + micro_batch)


def by_autograd(batch: int, sequence: int = S, sizes: DecoderSizes = SIZES) -> dict[str, list[Tensor]]:
    """Outputs and input gradients of each micro-batch, [S x B, H], and the sums of parameters' gradients."""
    plain = plain_block(sizes)
    plain.zero_grad()
    found: dict[str, list[Tensor]] = {"output": [], "input gradient": []}
    for micro_batch in range(MICRO_BATCHES):
        x, upstream = example(batch, sequence, micro_batch, sizes.hidden_size)
        x.requires_grad_()
        out = plain(x)
        out.backward(upstream)
        assert x.grad is not None
        found["output"].append(sequence_first_rows(out.detach()))
        found["input gradient"].append(sequence_first_rows(x.grad))
    for name, parameter in plain.named_parameters():
        assert parameter.grad is not None
        found[name] = [parameter.grad.clone()]
    return found


class _Passed:
    """The micro-batches' passes on this rank of a mesh."""

    def __init__(
        self,
        mesh: DeviceMesh,
        recompute: Recompute,
        batch: int,
        sequence: int = S,
        sizes: DecoderSizes = SIZES,
        masters: torch.dtype = torch.float32,
    ) -> None:
        """``masters``: the state's type. FP64 values are a copy of FP32 ones, and then products are joined."""
        self.mesh, self.group = mesh, TensorGroup(mesh["tensor"])
        row = ARCHITECTURES[type(sizes)]
        plain = deepcopy(plain_block(sizes)).to(masters)
        self.parameters = gathered(spread(plain, mesh, row), torch.float64)
        self.block = BlockPass(row.block(self.parameters, self.group, sizes, batch, PlainLinear), self.group, recompute)
        self.block.refresh()
        self._batch, self._sequence, self._width = batch, sequence, sizes.hidden_size

    def own_rows(self, x_BSH: Tensor) -> Tensor:
        return sequence_first_rows(x_BSH).chunk(self.group.size)[self.group.rank]

    def pass_through(self, micro_batch: int) -> Passing[tuple[Tensor, Tensor]]:
        """Forward and backward: output and input gradient, of all tokens."""
        x_tH, upstream_tH = map(self.own_rows, example(self._batch, self._sequence, micro_batch, self._width))
        out, activations = yield from self.block.forward(x_tH, keep=True)
        assert activations is not None
        whole = self.block.gather_gradient(RawOperand(upstream_tH))
        backward = self.block.backward(activations, upstream_tH, whole, self.block.gather_gradient)
        gradient, handed_on = yield from backward
        whole_gradient = (yield from handed_on.result()).tensor
        rows = whole_gradient.chunk(self.group.size)[self.group.rank]
        assert torch.equal(rows, gradient)
        return (yield from result_of(self.group.gather(out))), whole_gradient

    def found(self, *, together: bool) -> dict[str, list[Tensor]]:
        """As :func:`by_autograd`, of parameters that are cut this rank's part."""
        passes = [self.pass_through(number) for number in range(MICRO_BATCHES)]
        results = run_together(*passes) if together else [run_together(one)[0] for one in passes]
        found = {"output": [out for out, _ in results], "input gradient": [gradient for _, gradient in results]}
        own = {name: parameter.gradient for name, parameter in self.parameters.items()}
        sum_over_ranks(self.parameters.values())
        found.update({name: [gradient.clone()] for name, gradient in own.items()})
        return found

    def differences(self, ours: dict[str, list[Tensor]], theirs: dict[str, list[Tensor]]) -> dict[str, float]:
        """Largest ones, relative to the largest number."""
        assert ours.keys() == theirs.keys()
        return {
            name: max(self._difference(name, *pair) for pair in zip(ours[name], theirs[name], strict=True))
            for name in ours
        }

    def _difference(self, name: str, ours: Tensor, theirs: Tensor) -> float:
        if name in self.parameters:
            theirs = own_part(theirs, self.parameters[name], self.mesh)
        assert ours.shape == theirs.shape
        return float((ours - theirs).abs().max() / theirs.abs().max())


def assert_close(differences: dict[str, float]) -> None:
    assert len(differences) in (2 + 12, 2 + 9)  # parameters of a block of GPT-3, of Llama
    for name, difference in differences.items():
        assert difference < (1e-12 if name in ("output", "input gradient") else 5e-7), (name, difference)


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    with one_process() as mesh:
        yield mesh


@pytest.mark.parametrize(("batch", "masters"), [(1, torch.float64), (3, torch.float32)], ids=["apart", "joined"])
@BOTH
def test_numbers_are_those_of_autograd(sizes: DecoderSizes, batch: int, masters: torch.dtype, mesh: DeviceMesh) -> None:
    """And, whatever is computed again, the same to the bit."""
    every = []
    for recompute in RECOMPUTE:
        passed = _Passed(mesh, recompute, batch, sizes=sizes, masters=masters)
        every.append(passed.found(together=recompute == "full"))
        assert_close(passed.differences(every[-1], by_autograd(batch, sizes=sizes)))
    for other in every[1:]:
        for name, tensors in every[0].items():
            assert all(torch.equal(*pair) for pair in zip(tensors, other[name], strict=True)), name


@BOTH
def test_the_backward_pass_frees_each_tensor_after_its_last_use(sizes: DecoderSizes, mesh: DeviceMesh) -> None:
    """With everything kept, before attention's backward pass only what it and the first norm need is alive."""
    passed = _Passed(mesh, "none", 2, sizes=sizes)
    x_tH, upstream_tH = map(passed.own_rows, example(2, S, 0, sizes.hidden_size))
    ((_, activations),) = run_together(passed.block.forward(x_tH, keep=True))
    assert activations is not None and activations.heads is not None
    names = ("normed_x_TH", "normed_y_TH", "y_tH", "before_activation_TF", "after_activation_TF")
    alive = {name: weakref.ref(getattr(activations, name)) for name in names}
    whole = upstream_tH.clone()
    alive["whole gradient"] = weakref.ref(whole)
    at_attention: list[str] = []
    attention_backward: Callable[[Tensor], Tensor] = activations.heads.backward

    def note_alive(gradient: Tensor) -> Tensor:
        at_attention.extend(name for name, reference in alive.items() if reference() is not None)
        return attention_backward(gradient)

    watched: Any = SimpleNamespace(backward=note_alive, out=activations.heads.out)
    activations.heads = watched
    arguments: list[Any] = [activations, upstream_tH, OperandGather(Pending(whole))]
    del activations, whole
    block: Any = passed.block
    run_together(block.backward(*(arguments.pop(0) for _ in range(3)), block.gather_gradient))
    assert at_attention == ["normed_x_TH"]


def _on_two_ranks() -> dict[str, Any]:
    """Differences to one rank by autograd; and what a watch is told, with passes that take turns."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = mesh_of(tensor=RANKS)
    found: dict[str, Any] = {}
    for recompute in RECOMPUTE:
        for batch, sequence in ((2, S), (1, RANKS)):  # a sequence of a token for each rank
            for sizes in (SIZES, LLAMA):
                passed = _Passed(mesh, recompute, batch, sequence, sizes)
                differences = passed.differences(passed.found(together=True), by_autograd(batch, sequence, sizes))
                found[f"{type(sizes).__name__}, {recompute}, {batch}"] = differences
    return found | {f"{recompute}, told": _told(_Passed(mesh, recompute, 2)) for recompute in RECOMPUTE}


def _told(passed: _Passed) -> list[str]:
    """What a watch is told during a forward pass that takes turns with a backward pass, which makes values again."""
    passed.block.watch = watch = _CallLog()
    x_tH, upstream_tH = map(passed.own_rows, example(2, S, 0))
    _, activations = run_together(passed.block.forward(x_tH, keep=True))[0]
    watch.calls.clear()
    whole = passed.block.gather_gradient(RawOperand(upstream_tH))
    backward = passed.block.backward(activations, upstream_tH, whole, passed.block.gather_gradient)
    run_together(passed.block.forward(x_tH, keep=True), backward)
    return watch.calls


class _CallLog(ForwardWatch):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def begin(self) -> None:
        self.calls.append("begin")

    def mark(self) -> None:
        self.calls.append("mark")

    def end(self) -> None:
        self.calls.append("end")


def test_two_ranks_compute_what_one_does(mesh: DeviceMesh) -> None:
    """And a watch is told of forward passes alone, with the two ends of each wait for a block's four collectives."""
    expected = ["begin", *["mark"] * 8, "end"]
    for on_rank in in_processes(RANKS, _on_two_ranks):
        for name, found in on_rank.items():
            if name.endswith("told"):
                assert found == expected, name
            else:
                assert_close(found)
    assert all(_told(_Passed(mesh, recompute, 2)) == expected for recompute in RECOMPUTE)


def test_the_gradient_is_handed_on_before_the_last_weight_gradient(mesh: DeviceMesh) -> None:
    passed = _Passed(mesh, "none", 1)
    x_tH, upstream_tH = map(passed.own_rows, example(1, S, 0))
    _, activations = run_together(passed.block.forward(x_tH, keep=True))[0]
    still_zero: list[str] = []
    given: list[Tensor] = []

    def hand_on(gradient: RawOperand) -> OperandGather:
        given.append(gradient.tensor.clone())
        still_zero.extend(name for name, parameter in passed.parameters.items() if not parameter.gradient.any())
        return OperandGather(Pending(gradient.tensor))

    whole = OperandGather(Pending(upstream_tH))
    backward = passed.block.backward(activations, upstream_tH, whole, hand_on)
    gradient, handed_on = run_together(backward)[0]
    assert set(still_zero) == {LAST_GRADIENT, LAST_GRADIENT.replace("weight", "bias")}
    assert passed.parameters[LAST_GRADIENT].gradient.any()
    assert torch.equal(given[0], gradient)
    assert handed_on.pending.result is gradient


def test_what_is_kept_for_the_backward_pass(mesh: DeviceMesh) -> None:
    """In widths of the hidden state, of each token: its input; for selective also queries, keys, values, attention's
    output, the hidden state beside the MLP, and what goes into GELU; for none also what comes out of both LayerNorms
    and GELU. Of each token and head attention's normaliser, and of each token two figures of each LayerNorm."""
    batch, widths = 2, {}
    for recompute in RECOMPUTE:
        passed = _Passed(mesh, recompute, batch)
        x_tH = passed.own_rows(example(batch, S, 0)[0])
        _, activations = run_together(passed.block.forward(x_tH, keep=True))[0]
        widths[recompute] = held_bytes(activations) / 8 / (S * batch)
        assert run_together(passed.block.forward(x_tH, keep=False))[0][1] is None
    selective = H * (1 + 3 + 1 + 1 + 4) + HEADS
    assert widths == {"full": H, "selective": selective, "none": selective + H * (1 + 1 + 4) + 2 * 2}
