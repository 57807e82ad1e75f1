"""Faults that are mixed at random."""

from benchmark.drills.faults import Fault
from benchmark.drills.fuzz import POOL, mixed


def test_drawn_by_the_seed() -> None:
    first = [mixed(number, 1) for number in range(40)]
    assert first == [mixed(number, 1) for number in range(40)]
    assert first != [mixed(number, 2) for number in range(40)]
    assert len({drill.name for drill in first}) == 40


def test_two_or_three_of_the_pool_in_one_of_three_attempts() -> None:
    kinds = {(fault.act, fault.at) for fault in POOL if isinstance(fault, Fault)}
    seen = set()
    for number in range(200):
        drill = mixed(number, 7)
        assert 2 <= len(drill.faults) + len(drill.damage) <= 4  # damage alone gets a crash
        assert drill.faults, "files are damaged between attempts: something must end the first"
        assert drill.outcome == "healed"
        for fault in drill.faults:
            assert (fault.act, fault.at) in kinds
            assert fault.attempt in (1, 2, 3)
        seen |= {(fault.act, fault.at) for fault in drill.faults}
    assert seen == kinds


def test_two_errors_are_not_the_same_one() -> None:
    for number in range(300):
        amounts = [fault.amount for fault in mixed(number, 3).faults if fault.act == "raise"]
        assert len(set(amounts)) == len(amounts)
