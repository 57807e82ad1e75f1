import pytest
import torch

from benchmark.slice_run.device_facts import DeviceFacts, available_memory_bytes, device_facts
from stage.errors import InputError


def test_a_cpu_has_the_memory_that_linux_can_give() -> None:
    facts = device_facts("cpu")
    assert (facts.name, facts.accelerator) == ("cpu", "")
    assert facts.count >= 1
    assert 1 << 20 < available_memory_bytes() < 1 << 50


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_one_line_says_so_and_what_to_do() -> None:
    with pytest.raises(InputError, match=r"^device cuda: PyTorch .*CPU: --device cpu --width 7$"):
        device_facts("cuda", "--device cpu --width 7")


def test_the_driver_s_name_is_found_among_the_accelerators() -> None:
    assert DeviceFacts("NVIDIA H100 80GB HBM3", 8, 0).accelerator == "H100 SXM"
    assert DeviceFacts("NVIDIA H200", 8, 0).accelerator == "H200"
    assert DeviceFacts("Some other device", 8, 0).accelerator == ""
