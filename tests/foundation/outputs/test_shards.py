"""Shares of the work of several tasks."""

import pytest

from foundation.errors import InputError
from foundation.outputs.shards import Shard, parse_shard


@pytest.mark.parametrize(("text", "index"), [("0/3", 0), ("1/3", 1), ("2/3", 2), ("3/3", 0), ("1/1", 0)])
def test_tasks_count_from_0_or_from_1(text: str, index: int) -> None:
    assert parse_shard(text).index == index


@pytest.mark.parametrize("text", ["4/3", "1", "a/b", "1/0", "-1/3", "1/1000000", "1/3 "])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected K/N"):
        parse_shard(text)


def test_all_shares_are_everything_once() -> None:
    items, count = list(range(10)), 3
    assert sorted(item for index in range(count) for item in Shard(index, count).of(items)) == items
