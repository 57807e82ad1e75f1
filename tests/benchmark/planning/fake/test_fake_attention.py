"""The kernel that attention takes, by device and precision."""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from benchmark.planning.fake.fake_attention import Capability, kernel_on
from tests.benchmark.planning.fake.on_fake_gpu import on_fake_gpu


@pytest.mark.parametrize(
    ("capability", "dtype", "head_size", "kernel"),
    [
        ((9, 0), torch.bfloat16, 128, "cudnn"),
        ((10, 0), torch.bfloat16, 128, "cudnn"),
        ((9, 0), torch.bfloat16, 192, "flash"),
        ((8, 0), torch.bfloat16, 128, "flash"),
        ((9, 0), torch.float32, 128, "efficient"),
        ((9, 0), torch.bfloat16, 100, "efficient"),
    ],
)
def test_choice(capability: Capability, dtype: torch.dtype, head_size: int, kernel: str) -> None:
    assert kernel_on(capability, dtype, head_size) == kernel
    with on_fake_gpu(capability) as tracker:
        query = torch.zeros(2, 3, 16, head_size, dtype=dtype, device="cuda", requires_grad=True)
        out = F.scaled_dot_product_attention(query, query, query, is_causal=True)
        out.sum().backward()  # type: ignore[no-untyped-call]
        assert (out.shape, out.device.type) == (query.shape, "cuda")
        assert {(shape.kernel, shape.passes) for shape in tracker.counts.attention} == {
            (f"{kernel}_attention", 1),
            (f"{kernel}_attention", 2),
        }
        assert tracker.flops == 3 * 4 * 2 * 3 * 16 * 16 * head_size


def test_attention_that_is_computed_again() -> None:
    with on_fake_gpu() as tracker:
        query = torch.zeros(1, 2, 16, 64, dtype=torch.bfloat16, device="cuda", requires_grad=True)
        out = checkpoint(F.scaled_dot_product_attention, query, query, query, use_reentrant=False)
        out.sum().backward()
        assert {(shape.kernel, calls) for shape, calls in tracker.counts.attention.items()} == {
            ("cudnn_attention", 2),
            ("cudnn_attention", 1),
        }


def test_what_the_caller_forbids_is_left_out() -> None:
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
        assert kernel_on((9, 0), torch.bfloat16, 128) == "flash"
        with pytest.raises(RuntimeError, match=r"no fused attention for torch\.float32 and heads of 128"):
            kernel_on((9, 0), torch.float32, 128)
    torch.use_deterministic_algorithms(True)
    try:
        assert kernel_on((9, 0), torch.bfloat16, 128) == "flash"
    finally:
        torch.use_deterministic_algorithms(False)
