"""Messages against what NCCL's tests measured."""

import pytest

from benchmark.planning.step_model.collective_times import gather_s
from tests.benchmark.planning.step_model.works import gpt3_work, rates_of

H100 = rates_of(gpt3_work())


@pytest.mark.parametrize(("size", "measured_us"), [(16e6, 124), (64e6, 325), (1e9, 4029)])
def test_all_reduce_within_a_node(size: float, measured_us: float) -> None:
    """8 H100 (NVIDIA/dgxc-benchmarking, nccl/README.md). There NVLink adds up by itself, which gathers and scatters
    along a ring cannot: they take up to a third longer."""
    seconds = 2 * gather_s(H100, size, ranks=8, stride=1, per_node=8)
    assert 0.9 * measured_us < seconds * 1e6 < 1.45 * measured_us


def test_rings_through_nodes_use_all_cards_of_their_ranks() -> None:
    """32 to 512 nodes of 8: some 340 GB/s, 42.5 for each card (NCCL issue 1211)."""
    whole_node = gather_s(H100, 8e9, ranks=512, stride=1, per_node=8)
    assert 8e9 / whole_node / 1e9 == pytest.approx(340, rel=0.05)
    two_per_node = gather_s(H100, 8e9, ranks=16, stride=4, per_node=8)
    one_per_node = gather_s(H100, 8e9, ranks=16, stride=8, per_node=8)
    assert one_per_node == pytest.approx(2 * two_per_node, rel=0.02)
    assert gather_s(H100, 8e9, ranks=1, stride=1, per_node=8) == 0
