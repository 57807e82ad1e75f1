"""Messages between ranks: what was sent comes out, of another type is refused, and none of it is a pickle."""

import re
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import torch.distributed as dist

from benchmark.training.engine.distributed import joined_world
from benchmark.training.engine.rank_environment import read_environment
from benchmark.training.engine.rank_messages import all_messages, message_from_rank_0, messages_on_rank_0
from foundation.git import REPOSITORY
from tests.benchmark.runs import system_of
from tests.benchmark.tiny import in_processes

OBJECT_COLLECTIVE = re.compile(r"\b(all_gather_object|gather_object|scatter_object_list|broadcast_object_list)\b")


@dataclass(frozen=True)
class Row:
    name: str
    numbers: tuple[float, ...] = ()


def _exchange() -> dict[str, Any]:
    with joined_world(system_of(2), read_environment()) as world:
        own = Row("é" * world.rank, (float("inf"), world.rank / 3)[: world.rank + 1])
        pair = dist.new_group([1, 0])
        return {
            "all": all_messages(own, Row),
            "none": all_messages(None if world.rank else own, Row | None),
            "on rank 0": messages_on_rank_0({"rank": world.rank}, dict[str, int], pair),
            "from rank 0": message_from_rank_0([world.rank, "x" * 5000 * (1 - world.rank)], list[int | str]),
        }


@pytest.mark.slow
def test_messages_arrive_as_they_were_sent() -> None:
    rows = [Row("", (float("inf"),)), Row("é", (float("inf"), 1 / 3))]
    first, second = in_processes(2, _exchange)
    assert first["all"] == second["all"] == rows
    assert first["none"] == second["none"] == [rows[0], None]
    assert (first["on rank 0"], second["on rank 0"]) == ([{"rank": 0}, {"rank": 1}], [])
    assert first["from rank 0"] == second["from rank 0"] == [0, "x" * 5000]


def test_a_message_of_another_type_is_refused() -> None:
    with joined_world(system_of(1), read_environment()):
        assert all_messages(Row("a"), Row) == [Row("a")]
        with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
            all_messages(Row("a"), int)


def test_no_rank_sends_a_pickle() -> None:
    packages = ("benchmark", "model", "data_prep", "checkpoint_convert", "foundation")
    sources = [path for package in packages for path in (REPOSITORY / package).rglob("*.py")]
    assert len(sources) > 200
    assert [str(path) for path in sources if OBJECT_COLLECTIVE.search(path.read_text())] == []
