"""BF16 on a CPU by FP32 products."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmark.training.engine.micro_batches import MicroBatch
from model.cpu_bf16 import BF16_INSTRUCTIONS, Bf16ByFp32, cpu_has_bf16
from tests.model.recorded import build, mean_loss


@pytest.mark.slow
def test_bf16_by_fp32_rounds_where_bf16_does(weights: dict[str, Tensor], batch: MicroBatch) -> None:
    """Against PyTorch's own BF16 kernels, and both against FP32: the difference is BF16's rounding, not ours."""
    results: dict[str, tuple[Tensor, Tensor]] = {}
    for name in ("fp32", "native", "by_fp32"):
        model = build(weights, torch.float32 if name == "fp32" else torch.bfloat16)
        with Bf16ByFp32() if name == "by_fp32" else torch.enable_grad():
            logits = model(batch.tokens)
        mean_loss(logits, batch).backward()  # type: ignore[no-untyped-call]
        gradient = model.encoder.layers["2"].mlp.dense_h_to_4h.weight.grad  # type: ignore[union-attr]
        assert isinstance(gradient, Tensor)
        assert (logits.dtype == torch.bfloat16) is (gradient.dtype == torch.bfloat16) is (name != "fp32")
        results[name] = logits.float(), gradient.float()
    for part in range(2):
        error = [(results[name][part] - results["fp32"][part]).square().mean().sqrt() for name in ("native", "by_fp32")]
        assert 0 < error[1] < 1.5 * error[0]


def test_other_types_and_operations_stay_as_they_are() -> None:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    with Bf16ByFp32():
        assert torch.equal(torch.nn.functional.linear(x, x), x @ x.T)
        assert torch.equal(x.bfloat16() + 1, (x.bfloat16().float() + 1).bfloat16())


def test_rounding_comes_after_the_sum() -> None:
    """256 + 1 + 1 is 258 in FP32, which BF16 holds; summed in BF16 it would stay 256."""
    ones = torch.tensor([[256.0, 1.0, 1.0]]).bfloat16()
    with Bf16ByFp32():
        product = torch.nn.functional.linear(ones, torch.ones(1, 3).bfloat16(), torch.zeros(1).bfloat16())
        plain = torch.mm(ones, torch.ones(3, 1).bfloat16())
        with_bias = torch.addmm(torch.ones(1).bfloat16(), ones, torch.ones(3, 1).bfloat16())
        into = torch.zeros(1, 1).bfloat16()
        assert torch.mm(ones, torch.ones(3, 1).bfloat16(), out=into) is into
    assert (product.dtype, product.item()) == (torch.bfloat16, 258.0)
    assert (plain.dtype, plain.item(), into.item()) == (torch.bfloat16, 258.0, 258.0)
    assert with_bias.item() == 260.0  # 259, rounded


def test_instructions_are_those_of_this_machine() -> None:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = {flag for line in lines if line.startswith(("flags", "Features")) for flag in line.split()}
    assert cpu_has_bf16() is bool(flags & BF16_INSTRUCTIONS)
