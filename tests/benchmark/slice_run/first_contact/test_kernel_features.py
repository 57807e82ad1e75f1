import pytest
import torch

from benchmark.slice_run.first_contact import kernel_features
from benchmark.slice_run.first_contact.kernel_features import FeatureWrong, error_of, require_close

CPU = torch.device("cpu")
ON_CPU = ("products", "weight_gradients", "layer_norms", "gelus", "losses", "embeddings", "adams", "gradient_norms")


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_CPU)
def test_the_cpus_kernels_are_found_right(name: str) -> None:
    assert "error" in getattr(kernel_features, name)(CPU)


@pytest.mark.slow
def test_attention_is_found_right_and_named() -> None:
    assert "backward" in kernel_features.flash_attention(CPU)
    assert kernel_features.chosen_attention(CPU) == "BF16 CpuFlash, deterministic CpuFlash, FP32 CpuFlash"


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("gelu", torch.relu),
        ("gelu_backward", lambda gradient, x: gradient),
        ("add_product", lambda sums, left, right: None),
        ("put_product", lambda sums, left, right: sums.zero_()),
    ],
)
def test_a_kernel_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch, name: str, broken: object) -> None:
    monkeypatch.setattr(kernel_features, name, broken)
    tried = kernel_features.gelus if "gelu" in name else kernel_features.weight_gradients
    with pytest.raises(FeatureWrong, match=r"relative error .* is due"):
        tried(CPU)


def test_what_is_not_a_number_is_wrong() -> None:
    due = torch.ones(3)
    with pytest.raises(FeatureWrong, match="relative error nan"):
        require_close("sums", torch.full((3,), torch.nan), due, 1.0)
    assert error_of(torch.tensor([1.0, 1.0, 2.0]), due) == pytest.approx(3**-0.5)
