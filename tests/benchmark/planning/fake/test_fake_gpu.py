"""Tensors on a GPU that is not there: devices, products that only CUDA has, and torch.cuda as it was afterwards."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from benchmark.planning.fake.fake_gpu import fake_gpu
from tests.benchmark.planning.fake.on_fake_gpu import on_fake_gpu

_aten: Any = torch.ops.aten


def test_devices_are_those_of_a_gpu() -> None:
    with on_fake_gpu((10, 0)):
        x = torch.ones(3, 4, device="cuda")
        made = [x, x + 1, x.new_zeros(2), torch.empty_like(x), torch.arange(3, device=x.device), x.cuda()]
        made += [torch.tensor(1.0, device="cuda"), torch.as_tensor([1, 2], device="cuda"), torch.ones(2).to("cuda")]
        assert {(str(tensor.device), tensor.is_cuda, tensor.is_meta) for tensor in made} == {("cuda:0", True, False)}
        assert (torch.ones(2).device.type, x.to("cpu").is_cuda) == ("cpu", False)
        assert torch.cuda.is_available() and torch.cuda.device_count() == 8
        assert torch.cuda.get_device_capability() == (10, 0)
        assert torch.cuda.get_device_properties(0).total_memory == 80 * 10**9


def test_backward_passes() -> None:
    """PyTorch's engine asks the driver of a tensor's device, and there is none."""
    with on_fake_gpu():
        weight = torch.zeros(4, 4, device="cuda", requires_grad=True)
        F.gelu(torch.ones(2, 4, device="cuda") @ weight).sum().backward()  # type: ignore[no-untyped-call]
        assert weight.grad is not None and weight.grad.device.type == "cuda"


def test_products_into_fp32() -> None:
    with on_fake_gpu() as tracker:
        left = torch.zeros(6, 8, device="cuda", dtype=torch.bfloat16)
        right = torch.zeros(6, 5, device="cuda", dtype=torch.bfloat16)
        sums = torch.zeros(8, 5, device="cuda")
        assert _aten.addmm.dtype_out(sums, left.t(), right, torch.float32, out=sums) is sums
        torch.addmm(sums, left.t(), right, out_dtype=torch.float32, out=sums)
        made = torch.mm(left.t(), right, out_dtype=torch.float32)
        assert (made.shape, made.dtype, made.device.type) == ((8, 5), torch.float32, "cuda")
        assert tracker.flops == 3 * 2 * 6 * 8 * 5
        assert {shape.out_dtype for shape in tracker.counts.matmuls} == {"float32"}
        with pytest.raises(RuntimeError):
            _aten.addmm.dtype_out(sums.t(), left.t(), right, torch.float32, out=sums.t())


def test_everything_is_as_before_afterwards() -> None:
    before = (torch.cuda.is_available, torch.cuda.Stream, torch.Tensor.__dict__.get("device"), torch.Tensor.tolist)
    with pytest.raises(ZeroDivisionError), fake_gpu(devices=1, capability=(8, 0), memory_bytes=1, name="a GPU"):
        assert torch.cuda.get_device_name() == "a GPU"
        raise ZeroDivisionError
    assert before == (
        torch.cuda.is_available,
        torch.cuda.Stream,
        torch.Tensor.__dict__.get("device"),
        torch.Tensor.tolist,
    )
    assert torch.ones(2).device.type == "cpu"


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
