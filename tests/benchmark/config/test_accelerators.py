"""Accelerators are told apart by their names, and have a peak in each format."""

import pytest

from benchmark.config.accelerators import ACCELERATORS, accelerator_called, accelerator_named, models_in


@pytest.mark.parametrize(
    ("name", "models"),
    [
        ("NVIDIA GB300", {"GB300"}),
        ("NVIDIA B300-SXM-288GB", {"B300"}),
        ("NVIDIA GB200", {"GB200"}),
        ("NVIDIA Blackwell GPU (GB200)", {"GB200"}),
        ("tyche_ngpu512_gb300_nemo", {"GB300"}),
        ("8xB200", {"B200"}),
        ("NVIDIA Blackwell Ultra", {"GB300", "GB200", "B300", "B200"}),
        ("NVIDIA GH200", {"GH200"}),
        ("NVIDIA H200-SXM5-141GB", {"H200"}),
        ("dgxh100_n64", {"H100 SXM"}),
        ("Cluster", set()),
    ],
)
def test_models_in_a_name(name: str, models: set[str]) -> None:
    assert models_in(name) == models


def test_the_first_fitting_model_is_a_devices() -> None:
    devices = {"NVIDIA GB300": "GB300", "NVIDIA Blackwell Ultra": "B300", "NVIDIA Blackwell": "B200", "H200": "H200"}
    assert {name: accelerator_named(name) for name in devices} == devices
    assert accelerator_called("gb300") == "GB300"
    assert accelerator_named("NVIDIA H100 MIG 1g.10gb") is None


def test_four_bit_numbers_are_faster_than_twice_on_newer_devices() -> None:
    peaks = {name: [entry.fastest_tflops(bits) for bits in (16, 8, 4)] for name, entry in ACCELERATORS.items()}
    assert peaks["GB300"] == [2500.0, 5000.0, 15_000.0]
    assert peaks["B300"] == [2250.0, 4500.0, 15_000.0]
    assert peaks["GB200"] == [2500.0, 5000.0, 10_000.0]
    assert all(bf16 < eight < four for bf16, eight, four in peaks.values())
