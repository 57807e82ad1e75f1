"""Kernels are found right, and broken ones wrong."""

import pytest
import torch

from benchmark.preflight.first_contact import kernel_features
from benchmark.preflight.first_contact.features import FEATURES
from benchmark.preflight.first_contact.kernel_features import FeatureWrong
from tests.support import fresh_command

CPU = torch.device("cpu")
ON_CPU = [name for name, feature in FEATURES.items() if feature.on_cpu and "training" not in name]


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_CPU)
def test_the_cpus_kernels_are_found_right(name: str) -> None:
    done = fresh_command("benchmark.preflight.first_contact.features", name, "cpu")
    assert done.returncode == 0, done.stdout
    assert "errors: " in done.stdout or "the same bits twice" in done.stdout


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("gelu", torch.relu),
        ("gelu_backward", lambda gradient, x: gradient),
        ("add_product", lambda sums, left, right: None),
        ("put_product", lambda sums, left, right: sums.zero_()),
        ("put_product", lambda sums, left, right: None),  # it stays NaN
    ],
)
def test_a_kernel_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch, name: str, broken: object) -> None:
    monkeypatch.setattr(kernel_features, name, broken)
    tried = kernel_features.gelus if "gelu" in name else kernel_features.products
    with pytest.raises(FeatureWrong, match=r"relative error .* is due"):
        tried(CPU)
