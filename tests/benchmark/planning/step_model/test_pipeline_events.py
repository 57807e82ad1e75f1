"""Schedules: bubbles as the textbooks have them, orders that run, time in a steady state counted on."""

import dataclasses

import pytest

from benchmark.planning.step_model.pipeline_events import Pipeline1F1B, pipeline_s, work_of_device


def even(devices: int, chunks: int, send_s: float = 0.0, *, merged: bool = False, hidden: bool = True) -> Pipeline1F1B:
    """Forward passes of a second in all, backward passes of two."""
    forward, backward = ((seconds / chunks,) * chunks for seconds in (1, 2))
    return Pipeline1F1B((forward,) * devices, (backward,) * devices, send_s, hidden, merged)


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize(
    ("devices", "chunks", "micro_batches"), [(8, 1, 128), (8, 1, 8), (8, 6, 64), (8, 12, 512), (4, 2, 8)]
)
def test_bubble_is_p_less_one_over_chunks(devices: int, chunks: int, micro_batches: int, merged: bool) -> None:
    expected = 3 * (micro_batches + (devices - 1) / chunks)
    assert pipeline_s(even(devices, chunks, merged=merged), micro_batches) == pytest.approx(expected, rel=1e-9)
    forward = micro_batches + (devices - 1) / chunks
    assert pipeline_s(even(devices, chunks, merged=merged), micro_batches, backward=False) == pytest.approx(
        forward, rel=1e-9
    )


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize(("devices", "chunks", "micro_batches"), [(3, 3, 4), (8, 6, 63), (6, 2, 1), (4, 1, 9)])
def test_a_short_last_group_runs_and_takes_less_than_a_whole_one(
    devices: int, chunks: int, micro_batches: int, merged: bool
) -> None:
    ways = [(batch, place) for batch in range(micro_batches) for place in range(2 * devices * chunks)]
    done = [
        each
        for rank in range(devices)
        for work in work_of_device(rank, devices, chunks, micro_batches, merged=merged)
        for each in work
    ]
    assert sorted(done) == ways
    pipeline, whole = even(devices, chunks, merged=merged), -(-micro_batches // devices) * devices
    assert 3 * micro_batches < pipeline_s(pipeline, micro_batches) <= pipeline_s(pipeline, whole)
    assert pipeline_s(pipeline, micro_batches, backward=False) <= pipeline_s(pipeline, whole, backward=False)


def test_messages_cost_where_nothing_hides_them() -> None:
    none, hidden = pipeline_s(even(8, 1), 64), pipeline_s(even(8, 1, 0.1), 64)
    waited = pipeline_s(even(8, 1, 0.1, hidden=False), 64)
    assert none < hidden < waited
    assert pipeline_s(even(2, 1, 0.1, hidden=False), 1) == pytest.approx(6.2)  # one message there, and one back
    assert waited == pytest.approx(none + 64 * 0.2, rel=0.03)
    lockstep = even(8, 1, 0.1, merged=True)
    early = pipeline_s(dataclasses.replace(lockstep, after_send_s=0.2), 64)
    assert none < early < pipeline_s(lockstep, 64) < waited
    assert early == pytest.approx(none + 7 * 0.1)  # where the pipeline fills, no backward pass hides a message
