"""What a message costs, from made-up times."""

import pytest

from benchmark.planning.first_contact.contention import MESSAGE_US, Contended, cost_per_second, tell

MESSAGE_S = MESSAGE_US * 1e-6


def beside(layer: str, way: str, ctas: int, more_of_message: float) -> Contended:
    """A product of a millisecond, longer by so much of a message."""
    return Contended(layer, "forward", way, ctas, 1e-3 + more_of_message * MESSAGE_S)


def test_what_a_second_of_message_costs_is_what_its_products_take_longer() -> None:
    found = [
        *(beside(layer, way, 0, 0.0) for layer in ("qkv", "dense", "output") for way in ("cublas", "carve-out")),
        beside("qkv", "cublas", 8, 0.1),
        beside("dense", "cublas", 8, 0.3),
        beside("dense", "cublas", 16, 1.0),
        beside("qkv", "carve-out", 8, 0.0),
        beside("output", "cublas", 8, 9.0),  # belongs to no block
    ]
    costs = cost_per_second(found)
    assert costs["cublas"] == pytest.approx({8: 0.2, 16: 1.0})
    assert costs["carve-out"] == pytest.approx({8: 0.0})


def test_it_is_told_in_a_line() -> None:
    left = {"cost_per_second": {"cublas": {"8": 0.15, "16": 0.3}, "carve-out": {"8": 0.25}}}
    assert tell(left) == (
        "a second of message costs: cublas 0.15 s by 8 CTAs, 0.30 s by 16 CTAs; carve-out 0.25 s by 8 CTAs"
    )
