"""What a message costs, from made-up times."""

import sys

import pytest
import torch

from benchmark.planning.first_contact.contention import MESSAGE_US, Contended, contention_line, cost_per_second, main
from foundation.errors import InputError

MESSAGE_S = MESSAGE_US * 1e-6


def beside(layer: str, ctas: int, more_of_message: float) -> Contended:
    """A product of a millisecond, longer by so much of a message."""
    return Contended(layer, "forward", ctas, 1e-3 + more_of_message * MESSAGE_S)


def test_a_second_of_message_costs_what_its_products_take_longer() -> None:
    products = [
        *(beside(layer, 0, 0.0) for layer in ("qkv", "dense", "output")),
        beside("qkv", 8, 0.1),
        beside("dense", 8, 0.3),
        beside("dense", 16, 1.0),
        beside("output", 8, 9.0),  # belongs to no block
    ]
    assert cost_per_second(products) == pytest.approx({8: 0.2, 16: 1.0})


def test_the_costs_are_one_line() -> None:
    result = {"cost_per_second": {"cublas": {"8": 0.15, "16": 0.3}}}
    assert contention_line(result) == "a second of message costs: 0.15 s by 8 CTAs, 0.30 s by 16 CTAs"


@pytest.mark.parametrize(("words", "message"), [(["result.json"], "no CUDA device"), ([], "0 arguments, expected")])
def test_without_a_gpu_or_a_path_nothing_is_measured(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("benchmark.planning.first_contact.contention.set_environment", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["contention", *words])
    with pytest.raises(InputError, match=message):
        main()
