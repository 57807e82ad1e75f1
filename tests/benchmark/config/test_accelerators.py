"""Accelerators by the names that system descriptions give them."""

import pytest

from benchmark.config.accelerators import ACCELERATORS, accelerator_named


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
