"""Accelerators by the names that system descriptions give them."""

import pytest

from benchmark.config.accelerators import ACCELERATORS, accelerator_called, accelerator_named
from stage.errors import InputError


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("NVIDIA H100-SXM5-80GB", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA H200 NVL", "H200 NVL"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA Blackwell GPU", "B200"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", None),
        ("NVIDIA B300-SXM-288GB (Blackwell Ultra)", "B300"),
        ("Intel(R) Gaudi(R) 2 AI Accelerator", "Gaudi 2"),
        ("TPU-v5p", "TPU v5p"),
        ("tpu-trillium", "Trillium"),
        ("Intel Xeon", None),
        ("", None),
    ],
)
def test_the_first_pattern_that_is_found_names_it(model: str, name: str | None) -> None:
    assert accelerator_named(model) == name


def test_every_entry_can_be_named() -> None:
    assert {accelerator_named(name) for name in ACCELERATORS} == set(ACCELERATORS)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        *((name, name) for name in ACCELERATORS),
        ("H100", "H100 SXM"),
        ("h100", "H100 SXM"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("gb200", "GB200"),
        ("b200", "B200"),
        ("a100 80gb", "A100-80GB"),
        ("a100", "A100"),
        ("tpu v5P", "TPU v5p"),
        ("TRILLIUM", "Trillium"),
    ],
)
def test_what_a_user_calls_it(text: str, name: str) -> None:
    assert accelerator_called(text) == name


@pytest.mark.parametrize("text", ["H1000", "V100", " ", "100", "H100 MIG 1g.10gb"])
def test_what_nobody_sells(text: str) -> None:
    with pytest.raises(InputError, match=f"^accelerator {text}: unknown; there are GB200, B300, B200"):
        accelerator_called(text)
