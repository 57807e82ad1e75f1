"""Sizes and seeds of a configuration: what is possible, and what is refused."""

from types import SimpleNamespace

import pytest

from benchmark.config.field_checks import divisors, listed, require_positive, require_seed
from stage.errors import InputError


def test_divisors() -> None:
    assert divisors(12) == [1, 2, 3, 4, 6, 12]
    assert divisors(1) == [1]
    assert divisors(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36]
    assert len(divisors(8 * 999_999_999_999)) == 1024  # at once: of nodes that somebody mistyped
    assert listed(divisors(6)) == "1, 2, 3, 6"


def test_seeds_are_those_of_the_generator() -> None:
    for seed in (0, 2**32 - 1):
        require_seed(seed)
    for seed in (-1, 2**32):
        with pytest.raises(InputError, match=f"seed {seed}: expected 0 to 4294967295; change --seed"):
            require_seed(seed)


def test_the_first_field_below_one_is_named_with_its_option() -> None:
    sizes = SimpleNamespace(nodes=1, micro_batch_size=0, replicas=-1)
    require_positive(sizes, "nodes")
    with pytest.raises(InputError, match=r"^micro_batch_size 0: expected at least 1; change --micro-batch-size$"):
        require_positive(sizes, "nodes", "micro_batch_size", "replicas")
