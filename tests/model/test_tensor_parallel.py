"""Each parallel layer on two ranks against the plain one on one: outputs, and gradients of input and parameters."""

import copy
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from model.gpt3 import GPT3, LayerNorm
from model.gpt3_config import GPT3Config
from model.losses import OutputLayer
from model.passes.tensor_group import ForwardWatch
from model.tensor_parallel import (
    PARALLEL,
    apply_tensor_parallel,
    distribute,
    gather_sequence,
    part,
    scatter_sum,
    watch_collectives,
)
from tests.benchmark.tiny import in_processes

RANKS = 2
B, S, H, V = 2, 8, 12, 20
SIZES = GPT3Config(num_layers=2, hidden_size=H, num_attention_heads=4, seq_length=S, vocab_size=V, padded_vocab_size=V)
SEQUENCE, FEATURES = 1, 2


class _Compared:
    """Largest differences on this rank, by what was compared."""

    def __init__(self) -> None:
        dist.init_process_group("gloo")
        self.rank, self.mesh = dist.get_rank(), init_device_mesh("cpu", (RANKS,))
        self.differences: dict[str, float] = {}

    def own(self, whole: Tensor | None, axis: int | None) -> Tensor:
        assert whole is not None
        return whole if axis is None else whole.chunk(RANKS, axis)[self.rank]

    def layer(
        self, name: str, plain: nn.Module, x: Tensor, cut_in: int | None, cut_out: int | None, *rest: Any
    ) -> None:
        """``cut_in`` and ``cut_out``: the axis along which each rank has its part of input and output."""
        parallel = PARALLEL[name](copy.deepcopy(plain), self.mesh)
        ours_in, theirs_in = self.own(x, cut_in).clone(), x.clone()
        if x.is_floating_point():
            ours_in.requires_grad_()
            theirs_in.requires_grad_()
        theirs = plain(theirs_in, *rest)
        upstream = torch.randn(theirs.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        ours = parallel(ours_in, *rest)
        self.see(f"{name}: output", ours, self.own(theirs, cut_out))
        (theirs * upstream).sum().backward()
        (ours * self.own(upstream, cut_out)).sum().backward()
        if x.is_floating_point():
            self.see(f"{name}: gradient of the input", ours_in.grad, self.own(theirs_in.grad, cut_in))
        self.gradients(name, parallel, plain)

    def gradients(self, name: str, ours: nn.Module, theirs: nn.Module) -> None:
        for (path, one), (_, other) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
            assert isinstance(one.grad, DTensor)
            self.see(f"{name}: gradient of {path}", one.grad.full_tensor(), other.grad)

    def see(self, name: str, ours: Tensor | None, theirs: Tensor | None) -> None:
        assert ours is not None and theirs is not None
        assert ours.shape == theirs.shape, name
        self.differences[name] = (ours - theirs).abs().max().item()


def _compare() -> dict[str, float]:
    torch.set_num_threads(1)
    compared = _Compared()
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    x, hidden = torch.randn(B, S, H), torch.randn(B, S, 4 * H)
    tokens, labels = torch.randint(V, (2, B, S))
    norm = LayerNorm(H)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    compared.layer("query_key_value", nn.Linear(H, 3 * H), x, SEQUENCE, FEATURES)
    compared.layer("dense_4h_to_h", nn.Linear(4 * H, H), hidden, FEATURES, SEQUENCE)
    compared.layer("input_layernorm", norm, x, SEQUENCE, SEQUENCE)
    compared.layer("word_embeddings", nn.Embedding(V, H), tokens, None, SEQUENCE)
    compared.layer("position_embeddings", nn.Embedding(S, H), torch.arange(S), None, 0)
    _output_layer(compared, x, labels)
    _whole_model(compared, tokens, labels)
    sums = scatter_sum(x * (compared.rank + 1), compared.mesh.get_group())
    compared.see("scattered sum", sums, compared.own(3 * x, SEQUENCE))
    compared.see("gathered", gather_sequence(sums, compared.mesh.get_group()), 3 * x)
    return compared.differences


def _output_layer(compared: _Compared, x: Tensor, labels: Tensor) -> None:
    """Its table is the word embedding's, cut by rows."""
    table = torch.randn(V, H)
    ours_table = distribute(table, compared.mesh, Shard(0))
    theirs_table = table.clone().requires_grad_()
    ours_in, theirs_in = compared.own(x, SEQUENCE).clone().requires_grad_(), x.clone().requires_grad_()
    ours = PARALLEL["output_layer"](OutputLayer(), compared.mesh)(ours_in, ours_table, labels)
    theirs = OutputLayer()(theirs_in, theirs_table, labels)
    compared.see("output_layer: losses", ours, theirs)
    for losses in (ours, theirs):
        (losses * losses.detach()).sum().backward()
    compared.see("output_layer: gradient of the input", ours_in.grad, compared.own(theirs_in.grad, SEQUENCE))
    assert isinstance(ours_table.grad, DTensor)
    compared.see("output_layer: gradient of the table", ours_table.grad.to_local(), compared.own(theirs_table.grad, 0))


def _whole_model(compared: _Compared, tokens: Tensor, labels: Tensor) -> None:
    plain = GPT3(SIZES)
    model = copy.deepcopy(plain)
    apply_tensor_parallel(model, compared.mesh)
    ours, theirs = model(tokens, labels), plain(tokens, labels)
    compared.see("model: losses", ours, theirs)
    for losses in (ours, theirs):
        losses.sum().backward()
    compared.gradients("model", model, plain)
    own = [part(parameter).shape for name, parameter in model.named_parameters() if "query_key_value.weight" in name]
    assert own == [(3 * H // RANKS, H)] * 2


@pytest.fixture(scope="module")
def differences() -> list[dict[str, float]]:
    found = in_processes(RANKS, _compare)
    assert list(found[0]) == list(found[1])
    return found


@pytest.mark.parametrize(
    "layer",
    [
        "query_key_value",
        "dense_4h_to_h",
        "input_layernorm",
        "word_embeddings",
        "position_embeddings",
        "output_layer",
        "model",
        "scattered sum",
        "gathered",
    ],
)
def test_numbers_are_those_of_one_device(layer: str, differences: list[dict[str, float]]) -> None:
    """In FP64, so that only the order of sums differs."""
    for on_rank in differences:
        found = {name: difference for name, difference in on_rank.items() if name.split(":")[0] == layer}
        assert found
        assert max(found.values()) < 1e-12, found


class CallLog(ForwardWatch):
    """A watch that notes what it is told."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self) -> None:
        self.calls.append("resume")


def _watch() -> tuple[list[str], list[str]]:
    """What is told of a forward and backward pass of one column-parallel layer, and after the watch is gone."""
    group, log = _Compared().mesh.get_group(), CallLog()
    watch_collectives(log)
    x = torch.ones(1, S // RANKS, H, requires_grad=True)
    gather_sequence(x, group).sum().backward()  # type: ignore[no-untyped-call]
    told = list(log.calls)
    watch_collectives(None)
    gather_sequence(x, group)
    return told, log.calls[len(told) :]


def test_a_watch_is_told_of_each_collective() -> None:
    for told, afterwards in in_processes(RANKS, _watch):
        assert told == ["pause", "resume"] * 2
        assert afterwards == []
