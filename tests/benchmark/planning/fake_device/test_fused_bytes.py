"""A dry run counts a fused kernel as one operator, and its operators' bytes are as the kernel says."""

import pytest
import torch

from benchmark.config.benchmarks import BENCHMARKS
from model.fused_kernel import run_by
from model.passes.linear.fp8_kernels import scaled_rows, transpose_of
from model.passes.pass_sizes import MOST_TERMS
from model.passes.proofs.kernel_examples import (
    MEASURING_OF_GPT3,
    OF_LLAMA,
    AnyKernel,
    Example,
    PassTensors,
    fp8_kernels,
)
from model.passes.softmax_loss import exponential_sums, softmax_gradient, softmax_losses
from tests.benchmark.planning.fake_device.on_fake_gpu import on_fake_gpu

LLAMA = BENCHMARKS["llama31_8b"].model
SEVERAL_OPERATORS = dict(fp8_kernels(LLAMA, 1, "fp8", MOST_TERMS))
for one_operator in (scaled_rows, transpose_of):
    del SEVERAL_OPERATORS[one_operator]
KERNELS = [*OF_LLAMA, *MEASURING_OF_GPT3, *SEVERAL_OPERATORS.items()]


class Empty(PassTensors):
    """Tensors of the fake GPU."""

    def __init__(self) -> None:
        super().__init__(LLAMA, 1, 1, torch.bfloat16, torch.device("cuda", 0))

    def draw(self, *shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=self.dtype, device=self.device)


@pytest.mark.parametrize(("kernel", "example"), KERNELS, ids=[kernel.name for kernel, _ in KERNELS])
def test_operators_move_as_many_times_the_bytes(kernel: AnyKernel, example: Example) -> None:
    with on_fake_gpu() as tracker, torch.no_grad():
        arguments = example(Empty())
        tracker.restart()
        kernel(*arguments)
        by_operators = tracker.counts.bytes.total()
        assert tracker.counts.launches.total() > 1
        with run_by(tracker.run_fused):
            tracker.restart()
            live = tracker.live_bytes
            result = kernel(*arguments)
        assert tracker.counts.launches == {"elementwise": 1}
        results = [result] if isinstance(result, torch.Tensor) else result or []
        assert tracker.peak_bytes == live + sum(x.untyped_storage().nbytes() for x in results)
    assert by_operators / tracker.counts.bytes.total() == pytest.approx(kernel.operator_bytes, rel=0.03)


def test_the_loss_moves_6_bytes_per_logit_for_42() -> None:
    moved = []
    for fused in (True, False):
        with on_fake_gpu() as tracker, torch.no_grad():
            logits_TV, labels_T = Empty().draw(2048, 51_200), torch.zeros(2048, dtype=torch.int64, device="cuda")
            weights_T = torch.ones(2048, device="cuda")
            tracker.restart()
            if fused:
                with run_by(tracker.run_fused):
                    softmax_gradient(softmax_losses(logits_TV, labels_T, None)[1], weights_T)
            else:
                softmax_gradient(softmax_losses(logits_TV, labels_T, None)[1], weights_T)
            moved.append(tracker.counts.bytes.total() / logits_TV.numel())
    assert moved == [pytest.approx(6, rel=0.01), pytest.approx(42, rel=0.01)]
    assert exponential_sums.operator_bytes == 7
