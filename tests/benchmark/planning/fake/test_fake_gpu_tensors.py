"""Products that only CUDA has, and results that are told apart."""

from typing import Any

import pytest
import torch

from tests.benchmark.planning.fake.on_fake_gpu import on_fake_gpu

_aten: Any = torch.ops.aten


def test_products_into_fp32() -> None:
    with on_fake_gpu() as tracker:
        left = torch.zeros(6, 8, device="cuda", dtype=torch.bfloat16)
        right = torch.zeros(6, 5, device="cuda", dtype=torch.bfloat16)
        sums = torch.zeros(8, 5, device="cuda")
        assert _aten.addmm.dtype_out(sums, left.t(), right, torch.float32, out=sums) is sums
        torch.addmm(sums, left.t(), right, out_dtype=torch.float32, out=sums)
        made = torch.mm(left.t(), right, out_dtype=torch.float32)
        assert (made.shape, made.dtype, made.device.type) == ((8, 5), torch.float32, "cuda")
        assert tracker.counts.flops == 3 * 2 * 6 * 8 * 5
        assert {shape.out_dtype for shape in tracker.counts.matmuls} == {"float32"}
        with pytest.raises(RuntimeError):
            _aten.addmm.dtype_out(sums.t(), left.t(), right, torch.float32, out=sums.t())


def test_results_that_were_made_before_are_told_apart() -> None:
    """PyTorch finds a result again by what it depends on: everything that changes it must be told apart."""
    with on_fake_gpu():
        x = torch.ones(4, 6, device="cuda")
        for _ in range(2):  # made, then found
            assert (x + 1).dtype == (x + True).dtype == torch.float32
            assert (x.long() + 1).dtype == torch.int64
            assert (x.long() + 1.0).dtype == torch.float32
            assert (x + x.double()).dtype == torch.float64
            assert (x.t() + 1).stride() == (1, 6)
            assert (x + 1).stride() == (6, 1)
            assert x[1:].storage_offset() == 6 and x[2:].storage_offset() == 12
            assert x.expand(3, 4, 6).stride() == (0, 6, 1)
            assert torch.stack([x, x]).shape == (2, 4, 6) and torch.stack([x, x, x]).shape == (3, 4, 6)
            assert x.sum(0).shape == (6,) and x.sum((0, 1)).shape == () and x.sum(0, keepdim=True).shape == (1, 6)
            assert (x.cpu() + 1).device.type == "cpu" and (x + 1).device.type == "cuda"
            assert x.to(torch.bfloat16).dtype == torch.bfloat16 and x.to(torch.float16).dtype == torch.float16
            with torch.inference_mode():
                assert (x + 1).is_inference()
            assert not (x + 1).is_inference()
