"""--shard K/N."""

import pytest

from stage.errors import InputError
from stage.task_shard import TaskShard, parse_shard


def test_shares_are_counted_from_0() -> None:
    assert parse_shard("3/16") == TaskShard(3, 16)
    assert str(TaskShard(3, 16)) == "3/16"


@pytest.mark.parametrize("first", [0, 1])
def test_arrays_from_0_and_from_1_cover_every_share_once(first: int) -> None:
    assert {parse_shard(f"{number}/5").index for number in range(first, first + 5)} == set(range(5))


@pytest.mark.parametrize(
    "text", ["", "3", "4/3", "-1/3", "0/0", "1/2/3", "٣/16", "0/100001", "9" * 500 + "/" + "9" * 501]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"--shard .*: expected K/N with K from 0 to N-1 or from 1 to N"):
        parse_shard(text)
