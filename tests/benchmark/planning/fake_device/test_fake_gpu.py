"""A GPU that is not there: devices, streams, and torch.cuda as it was afterwards."""

import pytest
import torch

from benchmark.planning.fake_device.fake_gpu import fake_gpu
from benchmark.planning.fake_device.fake_streams import FakeEvent, StreamOrder
from model.kernels import rms_norm_backward, rms_norm_forward
from tests.benchmark.planning.fake_device.on_fake_gpu import on_fake_gpu


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


def test_rms_norm_is_one_kernel_as_cuda_has_it() -> None:
    with on_fake_gpu() as tracker:
        x_TH, gain = torch.ones(6, 8, device="cuda", dtype=torch.bfloat16), torch.ones(8, device="cuda")
        tracker.restart()
        out_TH, (reciprocal,) = rms_norm_forward(x_TH, gain)
        assert (out_TH.shape, out_TH.dtype) == (x_TH.shape, torch.bfloat16)
        assert (reciprocal.shape, reciprocal.dtype) == ((6, 1), torch.float32)
        rms_norm_backward(out_TH, x_TH, (reciprocal,), gain)
        assert tracker.counts.launches == {"reduction": 2}


class Handle:
    """Stands for a ``Work``."""


def begin(order: StreamOrder, seen: list[int]) -> Handle:
    """Begin a collective, which notes the work queued until the wait for it."""
    order.launch(seen.append)
    work = Handle()
    order.handed_out(work)
    return work


def test_work_between_call_and_wait() -> None:
    order, seen = StreamOrder(lambda _: None), list[int]()
    order.queue(5)
    work = begin(order, seen)
    order.queue(7)
    order.wait_for(work)
    order.wait_for(work)  # it is there
    assert seen == [7]


def test_collective_of_another_stream_is_waited_for_by_its_event() -> None:
    order, seen = StreamOrder(lambda _: None), list[int]()
    side, event = order.new_stream(), FakeEvent(order)
    with side:
        order.wait_for(begin(order, seen))
        order.queue(1000)  # beside the compute stream
        event.record()
    order.queue(3)
    other = order.new_stream()
    other.wait_event(event)
    assert seen == []
    order.compute.wait_stream(other)
    order.compute.wait_event(event)
    assert seen == [3]
