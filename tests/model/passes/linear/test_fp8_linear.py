"""Blocks whose linear layers compute in FP8, against the same blocks in BF16 and against themselves."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, get_args

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from model.architectures import ARCHITECTURES
from model.decoder_sizes import DecoderSizes, Recompute
from model.fused_kernel import FusedKernel, run_by
from model.gpt3 import Block
from model.gpt3_config import GPT3Config
from model.llama31 import LlamaBlock
from model.llama31_config import Llama31Config
from model.passes.block_pass import BlockPass
from model.passes.linear.fp8_kernels import VALUES, add_terms, put_terms, scale_and_reciprocal
from model.passes.linear.fp8_operand import Operand, cast
from model.passes.linear.fp8_weight import rescale
from model.passes.linear.linear_formats import LINEAR_FORMATS, LinearFormat
from model.passes.linear.raw_operand import RawOperand
from model.passes.parameter_group import ParameterGroup
from model.passes.proofs.kernel_examples import PassTensors, kernels_of
from model.passes.tensor_group import TensorGroup, result_of, run_together
from model.passes.whole_parameter import WholeParameter
from tests.benchmark.tiny import in_processes
from tests.model.passes.held_bytes import held_bytes
from tests.model.passes.on_mesh import draw, mesh_of, one_process, own_part, sequence_first_rows, spread

S, BATCH = 16, 2
SIZES: dict[str, DecoderSizes] = {
    "gpt3": GPT3Config(1, 64, 4, S, 32, 32),
    "llama31": Llama31Config(1, 64, 4, S, 32, 32, num_key_value_heads=2, ffn_hidden_size=96),
}
MODELS = pytest.mark.parametrize("model", SIZES)
RECOMPUTE: tuple[Recompute, ...] = get_args(Recompute)
FP8_FORMATS: tuple[LinearFormat, ...] = ("fp8", "fp8_bf16_gradients")
Results = dict[str, Tensor]


class Fp8Block:
    """A block on this rank of a mesh, in one of the formats."""

    def __init__(self, mesh: DeviceMesh, model: str, linear: LinearFormat, recompute: Recompute = "none") -> None:
        sizes = SIZES[model]
        row, self.group = ARCHITECTURES[type(sizes)], TensorGroup(mesh["tensor"])
        plain = Block(sizes) if isinstance(sizes, GPT3Config) else LlamaBlock(sizes)  # type: ignore[arg-type]
        for number, parameter in enumerate(plain.parameters()):
            parameter.data.copy_(0.1 * draw(*parameter.shape, seed=number) + (parameter.dim() == 1) * 0.5)
        self.parameters: dict[str, WholeParameter] = {
            name: (LINEAR_FORMATS[linear].weight if parameter.dim() == 2 else WholeParameter)(parameter, torch.bfloat16)
            for name, parameter in spread(plain, mesh, row).items()
        }
        parts = row.block(self.parameters, self.group, sizes, BATCH, LINEAR_FORMATS[linear].linear)
        self.block = BlockPass(parts, self.group, recompute)
        values = ParameterGroup(list(self.parameters.values()), [self.block.refresh])
        rescale(self.block.fp8_weights)
        values.begin_gather()
        values.end_gather()
        self.activation_bytes = 0

    def rows(self, seed: int) -> Tensor:
        whole = sequence_first_rows(draw(BATCH, S, 64, seed=seed).bfloat16())
        return whole.chunk(self.group.size)[self.group.rank].clone()

    def results(self) -> Results:
        """Output, gradient of the input, both of all tokens, and the parameters' gradients."""
        out_tH, activations = run_together(self.block.forward(self.rows(100), keep=True))[0]
        assert activations is not None
        self.activation_bytes = held_bytes(activations)
        upstream_tH = self.rows(200)
        whole = self.block.gather_gradient(RawOperand(upstream_tH))
        arguments: list[Any] = [activations, upstream_tH, whole]
        del activations, whole
        block: Any = self.block
        backward = block.backward(*(arguments.pop(0) for _ in range(3)), block.gather_gradient)
        gradient_tH, _ = run_together(backward)[0]
        out, gradient = (run_together(result_of(self.group.gather(part)))[0].double() for part in (out_tH, gradient_tH))
        parameters = ParameterGroup(list(self.parameters.values()))
        own = {name: parameter.gradient for name, parameter in self.parameters.items()}
        parameters.begin_reduce()
        return {"output": out, "input gradient": gradient} | {name: own[name].double() for name in own}


def distance(ours: Tensor, theirs: Tensor) -> float:
    """Root mean square of the difference over that of the numbers."""
    return float((ours - theirs).norm() / theirs.norm())


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    with one_process() as mesh:
        yield mesh


@MODELS
@pytest.mark.parametrize("linear", FP8_FORMATS)
def test_a_block_in_fp8_is_near_the_same_in_bf16(model: str, linear: LinearFormat, mesh: DeviceMesh) -> None:
    """Rounding to 4 bits is off by 2.6 % of a number (RMS), to 3 bits by 5.2 %; a gradient has been rounded often."""
    theirs = Fp8Block(mesh, model, "plain").results()
    ours = Fp8Block(mesh, model, linear).results()
    assert ours.keys() == theirs.keys()
    distances = {name: distance(ours[name], theirs[name]) for name in ours}
    assert 0.005 < distances.pop("output") < 0.06
    assert all(value < 0.17 for value in distances.values()), distances


@MODELS
def test_weight_gradients_in_bf16_are_nearer(model: str, mesh: DeviceMesh) -> None:
    """Those of the last product: its input and its gradient have been rounded nowhere before."""
    theirs = Fp8Block(mesh, model, "plain").results()
    name = "mlp.dense_4h_to_h.weight" if model == "gpt3" else "mlp.down_proj.weight"
    nearer, farther = (
        distance(Fp8Block(mesh, model, linear).results()[name], theirs[name])
        for linear in ("fp8_bf16_gradients", "fp8")
    )
    assert nearer < 0.7 * farther


@MODELS
@pytest.mark.parametrize("linear", FP8_FORMATS)
def test_recomputed_values_are_the_same_to_the_bit(model: str, linear: LinearFormat, mesh: DeviceMesh) -> None:
    every = [Fp8Block(mesh, model, linear, recompute).results() for recompute in RECOMPUTE]
    for other in every[1:]:
        assert all(torch.equal(every[0][name], other[name]) for name in every[0])


CASTS = {
    ("fp8", "none"): {"inputs": 4, "gradients": 4},
    ("fp8", "selective"): {"inputs": 4 + 4, "gradients": 4},
    ("fp8", "full"): {"inputs": 4 + 4, "gradients": 4},
    ("fp8_bf16_gradients", "none"): {"inputs": 4, "gradients": 4},
    ("fp8_bf16_gradients", "selective"): {"inputs": 4, "gradients": 4},
    ("fp8_bf16_gradients", "full"): {"inputs": 4 + 3, "gradients": 4},
}
"""Casts of a micro-batch: each input once, and once more where it is computed again."""
Call = tuple[str, tuple[Any, ...]]
"""A fused kernel's name, and its arguments: shapes and types of tensors."""


def note_call(calls: set[Call], kernel: FusedKernel[Any, Any], arguments: Sequence[Any]) -> Any:
    if kernel not in (put_terms, add_terms):  # compiled for several terms alone
        described = ((x.shape, x.dtype) if isinstance(x, Tensor) else x for x in arguments)
        calls.add((kernel.name, tuple(described)))
    return kernel.function(*arguments)


def compiled_calls(model: str, ranks: int, linear: LinearFormat) -> set[Call]:
    """Calls for which a run compiles kernels before it starts."""
    tensors = PassTensors(SIZES[model], ranks, BATCH, torch.bfloat16, torch.device("cpu"))
    calls: set[Call] = set()
    for kernel, example in kernels_of(SIZES[model], ranks, linear):
        note_call(calls, kernel, example(tensors))
    return calls


@MODELS
@pytest.mark.parametrize(("linear", "recompute"), CASTS)
def test_each_tensor_is_cast_once_by_its_largest_value_and_with_kernels_compiled_before(
    model: str, linear: LinearFormat, recompute: Recompute, mesh: DeviceMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[str] = Counter()

    def counted(x: RawOperand, dtype: torch.dtype, **options: bool) -> Operand:
        counts["inputs" if dtype == VALUES else "gradients"] += 1
        operand = cast(x, dtype, **options)
        assert operand.scale == scale_and_reciprocal.function(x.tensor, dtype)
        return operand

    calls: set[Call] = set()
    block = Fp8Block(mesh, model, linear, recompute)
    monkeypatch.setattr("model.passes.linear.fp8_linear.cast", counted)
    with run_by(partial(note_call, calls)):
        block.results()
    assert counts == CASTS[linear, recompute]
    assert calls <= compiled_calls(model, 1, linear)


@MODELS
@pytest.mark.parametrize("recompute", RECOMPUTE)
def test_scales_alone_are_kept_besides_what_bf16_keeps(model: str, recompute: Recompute, mesh: DeviceMesh) -> None:
    sizes: dict[str, int] = {}
    for linear in ("plain", *FP8_FORMATS):
        block = Fp8Block(mesh, model, linear, recompute)
        block.results()
        sizes[linear] = block.activation_bytes
    assert sizes["fp8_bf16_gradients"] == sizes["plain"]
    fewer = sizes["plain"] - sizes["fp8"]
    # Both norms' outputs and the MLP's inner activations have one byte instead of two; attention's output has one more.
    inner = 256 if model == "gpt3" else 96
    bytes_of_inputs = (64 + 64 + inner - 64) * S * BATCH if recompute == "none" else 0
    scales = 0 if recompute == "full" else 4 * 2 * 4  # two FP32 scalars of four operands
    assert fewer == bytes_of_inputs - scales


def _on_two_ranks(of_one_rank: dict[tuple[str, LinearFormat], Results]) -> dict[tuple[str, str, str], float]:
    """Distances to the results of one rank, by model, format and name."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = mesh_of(tensor=2)
    distances: dict[tuple[str, str, str], float] = {}
    for (model, linear), results in of_one_rank.items():
        block, calls = Fp8Block(mesh, model, linear), set[Call]()
        with run_by(partial(note_call, calls)):
            found = block.results()
        assert calls <= compiled_calls(model, 2, linear)
        for name, ours in found.items():
            theirs = results[name]
            if name in block.parameters:
                theirs = own_part(theirs, block.parameters[name], mesh)
            distances[model, linear, name] = distance(ours, theirs)
    return distances


@pytest.mark.slow
def test_two_tensor_parallel_ranks_compute_what_one_does(mesh: DeviceMesh) -> None:
    """The output as near as in BF16: the ranks' scales differ by powers of two, and only numbers that are subnormal in
    FP8 see that. A rounding of BF16 moves some numbers over the middle between two of FP8."""
    formats: tuple[LinearFormat, ...] = ("plain", *FP8_FORMATS)
    of_one_rank = {(model, linear): Fp8Block(mesh, model, linear).results() for model in SIZES for linear in formats}
    for distances in in_processes(2, _on_two_ranks, of_one_rank):
        for name, value in distances.items():
            assert value < (0.03 if name[2] == "output" else 0.1), name
