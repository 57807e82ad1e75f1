"""A GPU that is not there: devices, streams, and torch.cuda as it was afterwards."""

from collections.abc import Callable

import pytest
import torch

from benchmark.planning.fake_device.device_rules import UnknownQuestion
from benchmark.planning.fake_device.fake_gpu import fake_gpu
from benchmark.planning.fake_device.fake_streams import StreamOrder
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


def test_work_between_call_and_wait() -> None:
    order, flops = StreamOrder(), list[int]()
    order.queue(5)
    order.launch(flops.append)
    work = Handle()
    order.handed_out(work)
    order.queue(7)
    order.wait_for(work)
    order.wait_for(work)  # it has arrived
    assert flops == [7]


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        ("torch.cuda.memory_stats", lambda: torch.cuda.memory_stats()),
        ("torch.cuda.Stream", lambda: torch.cuda.Stream()),  # type: ignore[no-untyped-call]
        ("torch.cuda.Event", lambda: torch.cuda.Event()),  # type: ignore[no-untyped-call]
        ("torch.cuda.renamed_tomorrow", lambda: torch.cuda.renamed_tomorrow()),  # type: ignore[attr-defined]
        ("wait_stream of a stream", lambda: torch.cuda.current_stream().wait_stream(None)),  # type: ignore[arg-type]
        ("renamed_tomorrow of a stream", lambda: torch.accelerator.current_stream().renamed_tomorrow()),  # type: ignore[attr-defined]
    ],
)
def test_an_unknown_question_is_named_in_one_line(
    question: str, asked: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "renamed_tomorrow", lambda: 1, raising=False)
    monkeypatch.setattr(torch.cuda, "__all__", [*torch.cuda.__all__, "renamed_tomorrow"])
    with on_fake_gpu(), pytest.raises(UnknownQuestion) as unknown:
        asked()
    place = "tests/benchmark/planning/fake_device/test_fake_gpu.py:"
    text = str(unknown.value)
    assert (
        text.startswith(place) and f"PyTorch {torch.__version__} asks the dry run's fake device for {question}," in text
    )
    assert "\n" not in text and isinstance(unknown.value, AttributeError)  # PyTorch may ask by hasattr


def test_an_optimizer_asks_for_graphs() -> None:
    """PyTorch 2.15 asks the stream in each step."""
    with on_fake_gpu():
        assert not torch.accelerator.current_stream().is_capturing()
        assert not torch.cuda.current_stream().is_capturing() and not torch.cuda.is_current_stream_capturing()


def test_a_function_that_pytorch_has_dropped_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cuda, "get_device_name")
    monkeypatch.setattr(torch.cuda, "__all__", [name for name in torch.cuda.__all__ if name != "get_device_name"])
    with on_fake_gpu():
        assert torch.ones(2, device="cuda").is_cuda and not hasattr(torch.cuda, "get_device_name")
