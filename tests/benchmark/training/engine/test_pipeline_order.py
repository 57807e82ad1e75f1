"""All ranks of a pipeline, slot by slot: what one sends is what another waits for, and every pass is done once."""

import itertools
from itertools import product

import pytest

from benchmark.training.engine.pipeline_order import (
    PipelineShape,
    ScheduledPass,
    Slot,
    evaluation_slots,
    most_in_flight,
    training_slots,
)

RANKS, CHUNKS, MICRO_BATCHES = (1, 2, 3, 5), (1, 2, 3), (1, 2, 4, 5, 11, 15)

Message = tuple[str, int, int, int]
"""Hidden state or gradient; receiving rank; pipeline stage of the model that it is for; micro-batch."""


def shapes(ranks: int, chunks: int, apart: bool = False) -> list[PipelineShape]:
    return [PipelineShape(ranks, rank, chunks, apart) for rank in range(ranks)]


def sent_after(slot: Slot, shape: PipelineShape) -> set[Message]:
    results = set()
    if slot.forward is not None and not shape.is_last(slot.forward.chunk):
        stage = slot.forward.chunk * shape.ranks + shape.rank + 1
        results.add(("hidden state", stage % shape.ranks, stage, slot.forward.micro_batch))
    if slot.backward is not None and not shape.is_first(slot.backward.chunk):
        stage = slot.backward.chunk * shape.ranks + shape.rank - 1
        results.add(("gradient", stage % shape.ranks, stage, slot.backward.micro_batch))
    return results


def needed_before(slot: Slot, shape: PipelineShape) -> set[Message]:
    results = set()
    for kind, scheduled in (("hidden state", slot.forward), ("gradient", slot.backward)):
        from_elsewhere = scheduled is not None and not (shape.is_first if scheduled is slot.forward else shape.is_last)(
            scheduled.chunk
        )
        if scheduled is not None and from_elsewhere:
            results.add((kind, shape.rank, scheduled.chunk * shape.ranks + shape.rank, scheduled.micro_batch))
    return results


def assert_exchanges_match(every: list[PipelineShape], slots: list[list[Slot]]) -> None:
    """Rank r is r slots behind the first. In each exchange what all ranks send is what all wait for."""
    for exchange in range(max(rank + len(own) for rank, own in enumerate(slots)) + 1):
        sent, needed = set[Message](), set[Message]()
        for shape, own in zip(every, slots, strict=True):
            number = exchange - shape.rank
            if 0 < number <= len(own):
                sent |= sent_after(own[number - 1], shape)
            if 0 <= number < len(own):
                needed |= needed_before(own[number], shape)
        assert sent == needed, exchange


def assert_each_once(passes: list[ScheduledPass], chunks: int, micro_batches: int) -> None:
    assert len(passes) == chunks * micro_batches
    assert set(passes) == {
        ScheduledPass(chunk, number) for chunk, number in product(range(chunks), range(micro_batches))
    }


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("ranks", RANKS)
def test_what_is_sent_is_what_is_waited_for(ranks: int, apart: bool) -> None:
    for chunks, micro_batches in product(CHUNKS, MICRO_BATCHES):
        every = shapes(ranks, chunks, apart)
        assert_exchanges_match(every, [training_slots(shape, micro_batches) for shape in every])


@pytest.mark.parametrize("ranks", RANKS)
def test_what_is_sent_in_an_evaluation_is_what_is_waited_for(ranks: int) -> None:
    for chunks, micro_batches in product(CHUNKS, MICRO_BATCHES):
        every = shapes(ranks, chunks)
        slots = [evaluation_slots(shape, micro_batches) for shape in every]
        assert_exchanges_match(every, slots)
        for own in slots:
            assert_each_once([slot.forward for slot in own if slot.forward is not None], chunks, micro_batches)
            assert all(slot.backward is None for slot in own)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("ranks", RANKS)
def test_every_pass_is_done_once_and_backward_after_forward(ranks: int, apart: bool) -> None:
    """``apart``: in a later slot. Micro-batches go through each chunk in their order, so that nothing is added to a
    chunk's gradients after the last one's backward pass. Passes in flight are bounded, by a bound that is reached once
    there are as many passes and no group of micro-batches is short of some."""
    for chunks, micro_batches in product(CHUNKS, MICRO_BATCHES):
        for shape in shapes(ranks, chunks, apart):
            slots = training_slots(shape, micro_batches)
            forward = {slot.forward: number for number, slot in enumerate(slots) if slot.forward is not None}
            backward = {slot.backward: number for number, slot in enumerate(slots) if slot.backward is not None}
            assert_each_once([slot.forward for slot in slots if slot.forward is not None], chunks, micro_batches)
            assert_each_once([slot.backward for slot in slots if slot.backward is not None], chunks, micro_batches)
            assert all(number >= forward[scheduled] + apart for scheduled, number in backward.items())
            for passes, chunk in product((forward, backward), range(chunks)):
                assert [scheduled.micro_batch for scheduled in passes if scheduled.chunk == chunk] == list(
                    range(micro_batches)
                )
            ends = ((slot.forward is not None) - (slot.backward is not None) for slot in slots)
            before = [0, *itertools.accumulate(ends)]
            assert before[-1] == 0
            most = max(alive + (slot.forward is not None) for alive, slot in zip(before, slots, strict=False))
            bound = most_in_flight(shape)
            assert most <= bound
            if micro_batches % ranks == 0 and micro_batches * chunks >= bound:
                assert most == bound


def test_one_rank_does_both_passes_of_a_micro_batch_in_a_slot() -> None:
    """Unless they are to be apart."""
    passes = [ScheduledPass(0, number) for number in range(3)]
    together, apart = shapes(1, 1), shapes(1, 1, apart=True)
    assert training_slots(together[0], 3) == [Slot(scheduled, scheduled) for scheduled in passes]
    assert training_slots(apart[0], 3) == [
        Slot(passes[0], None),
        Slot(passes[1], passes[0]),
        Slot(passes[2], passes[1]),
        Slot(None, passes[2]),
    ]


def test_in_flight_in_the_175b_run() -> None:
    """Eight ranks with six chunks of two blocks: what the first and the last hold at most, and apart."""
    assert [most_in_flight(shape) for shape in (*shapes(8, 6)[::7], *shapes(8, 6, apart=True)[::7])] == [55, 41, 56, 42]


def test_a_chunk_ends_its_turn_before_another_one_goes_backward() -> None:
    for ranks, chunks, micro_batches in product(RANKS, CHUNKS, MICRO_BATCHES):
        shape = PipelineShape(ranks, 0, chunks)
        passes = [slot.backward for slot in training_slots(shape, micro_batches) if slot.backward is not None]
        ends = [
            following is None or following.chunk != scheduled.chunk
            for scheduled, following in itertools.pairwise([*passes, None])
            if scheduled is not None
        ]
        assert [shape.ends_turn(scheduled.micro_batch, micro_batches) for scheduled in passes] == ends
