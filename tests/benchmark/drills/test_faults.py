"""What is drawn of a fault, and whom it strikes."""

from random import Random

from benchmark.drills.faults import Damage, Fault, drawn, strikes, words_for


def test_drawn_by_the_seed_within_its_bounds() -> None:
    fault = Fault("kill", "passes", (3, 8), delay_s=0.5)
    found = [drawn(fault, Random(seed), 4) for seed in range(50)]
    assert found == [drawn(fault, Random(seed), 4) for seed in range(50)]
    assert {one.steps for one in found} == {(step, step) for step in range(3, 9)}
    assert {one.rank for one in found} == {0, 1, 2, 3}
    assert all(0 <= one.delay_s <= 0.5 for one in found)
    assert drawn(Fault("kill", "passes", rank="all"), Random(1), 4).rank == "all"


def test_strikes_its_rank_in_its_attempt() -> None:
    assert strikes(Fault("kill", "passes", rank=1, attempt=2), rank=1, attempt=2)
    assert not strikes(Fault("kill", "passes", rank=1, attempt=2), rank=0, attempt=2)
    assert not strikes(Fault("kill", "passes", rank=1, attempt=2), rank=1, attempt=1)
    assert strikes(Fault("kill", "passes", rank="all", attempt=None), rank=3, attempt=9)


def test_words_tell_all_that_was_drawn() -> None:
    faults: list[Fault | Damage] = [Fault("slow", "call:passes", (5, 5), 1, 2, 0.3), Damage("flip newest", 3)]
    words = "slow 0.3 on rank 1 at call:passes after step 5, attempt 2; flip newest before attempt 3"
    assert words_for(faults) == words
    assert words_for([Fault("kill", "update", (7, 7), "all", None, delay_s=0.02)]) == (
        "kill on all ranks at update after step 7 + 20 ms, every attempt"
    )
