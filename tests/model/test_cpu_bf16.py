"""BF16 on a CPU by FP32 products."""

from pathlib import Path

import torch

from model.cpu_bf16 import BF16_INSTRUCTIONS, Bf16ByFp32, cpu_has_bf16


def test_bf16_by_fp32_rounds_where_bf16_does() -> None:
    """Against PyTorch's own BF16 kernels, and both against FP32: the difference is BF16's rounding, not ours."""
    generator = torch.Generator().manual_seed(1)
    left, right, bias = (torch.randn(size, generator=generator).bfloat16() for size in ((64, 96), (96, 32), (32,)))
    exact, native = torch.addmm(bias.float(), left.float(), right.float()), torch.addmm(bias, left, right)
    with Bf16ByFp32():
        found = torch.addmm(bias, left, right)
    error = [(one.float() - exact).square().mean().sqrt() for one in (native, found)]
    assert 0 < error[1] < 1.5 * error[0]


def test_other_types_and_operations_stay_as_they_are() -> None:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    with Bf16ByFp32():
        assert torch.equal(torch.mm(x, x.T), x @ x.T)
        assert torch.equal(x.bfloat16() + 1, (x.bfloat16().float() + 1).bfloat16())


def test_rounding_comes_after_the_sum() -> None:
    """256 + 1 + 1 is 258 in FP32, which BF16 holds; summed in BF16 it would stay 256."""
    ones = torch.tensor([[256.0, 1.0, 1.0]]).bfloat16()
    with Bf16ByFp32():
        plain = torch.mm(ones, torch.ones(3, 1).bfloat16())
        with_bias = torch.addmm(torch.ones(1).bfloat16(), ones, torch.ones(3, 1).bfloat16())
        into = torch.zeros(1, 1).bfloat16()
        assert torch.mm(ones, torch.ones(3, 1).bfloat16(), out=into) is into
    assert (plain.dtype, plain.item(), into.item()) == (torch.bfloat16, 258.0, 258.0)
    assert with_bias.item() == 260.0  # 259, rounded


def test_instructions_are_those_of_this_machine() -> None:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = {flag for line in lines if line.startswith(("flags", "Features")) for flag in line.split()}
    assert cpu_has_bf16() is bool(flags & BF16_INSTRUCTIONS)
