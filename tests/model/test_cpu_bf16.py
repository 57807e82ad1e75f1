"""BF16 on a CPU by FP32 products."""

import torch

from model.cpu_bf16 import Bf16ByFp32


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
