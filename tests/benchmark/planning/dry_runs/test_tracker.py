"""What is counted of operations whose cost is known by hand."""

import torch
import torch.distributed as dist

from benchmark.config.systems import SYSTEMS
from benchmark.planning.dry_runs.fake_world import fake_world
from benchmark.planning.dry_runs.tracker import Tracker
from tests.benchmark.tiny import in_processes


def test_memory_at_its_peak_and_what_is_left() -> None:
    with Tracker({}) as tracker:
        kept = torch.ones(1000)
        for _ in range(3):
            passing = kept + 1
            del passing
        assert (tracker.live_bytes, tracker.peak_bytes) == (4000, 8000)
        view = kept.view(10, 100)
        assert tracker.live_bytes == 4000
        tracker.restart()
        assert (tracker.peak_bytes, tracker.counts.flops) == (4000, 0)
        del kept
        assert tracker.live_bytes == 4000  # of which it is a view
        del view
        assert tracker.live_bytes == 0


def _messages() -> dict[tuple[str, str], tuple[int, int]]:
    with fake_world(SYSTEMS["dgxh100_n8"], 0) as world:
        shard, whole = world.mesh["tensor"].get_group(), torch.ones(1000)
        with Tracker({shard.group_name: "tensor"}) as tracker:
            dist.all_reduce(whole)
            dist.all_reduce(whole, group=shard)
            dist.all_gather_into_tensor(torch.ones(8000), whole, group=shard)
            dist.reduce_scatter_tensor(whole, torch.ones(8000), group=shard)
            dist.broadcast(whole, 0)
            dist.broadcast(whole, 0)
            dist.barrier()
        found: dict[tuple[str, str], tuple[int, int]] = {}
        for message, calls in tracker.counts.messages.items():
            before = found.get((message.kind, message.axis), (0, 0))
            found[message.kind, message.axis] = before[0] + calls, before[1] + calls * message.bytes
        return found


def test_messages_by_kind_and_axis() -> None:
    """Bytes of the larger side."""
    (found,) = in_processes(1, _messages)
    assert found == {
        ("all-reduce", "all"): (1, 4000),
        ("all-reduce", "tensor"): (1, 4000),
        ("all-gather", "tensor"): (1, 32000),
        ("reduce-scatter", "tensor"): (1, 32000),
        ("broadcast", "all"): (2, 8000),
    }
