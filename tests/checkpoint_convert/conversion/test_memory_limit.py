"""Sizes as a person writes them."""

import pytest

from checkpoint_convert.conversion.memory_limit import parse_memory_limit
from stage.errors import InputError


@pytest.mark.parametrize(
    ("text", "expected"),
    [("8GiB", 8 << 30), ("500MB", 500_000_000), (" 1.5 kb ", 1500), ("12", 12), (".5KiB", 512), ("2.mib", 2 << 20)],
)
def test_sizes_are_understood(text: str, expected: int) -> None:
    assert parse_memory_limit(text) == expected


@pytest.mark.parametrize("text", ["", "lots", "8 G", "-1GB", "1.5.6", ".", "GB", "1e9"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected a size such as 8GiB or 500MB"):
        parse_memory_limit(text)
