"""What is queued between a collective and the wait for it."""

from benchmark.planning.fake.fake_streams import FakeEvent, StreamOrder


class Handle:
    """Stands for a ``Work``."""


def order_and_waits() -> tuple[StreamOrder, list[str], list[int]]:
    waits: list[str] = []
    return StreamOrder(waits.append), waits, []


def test_work_between_call_and_wait() -> None:
    order, _, seen = order_and_waits()
    order.queue(5)
    order.launch(seen.append)
    work = Handle()
    order.handed_out(work)
    order.queue(7)
    order.wait_for(work)
    order.wait_for(work)  # it is there
    assert seen == [7]


def test_collective_of_another_stream_is_waited_for_by_its_event() -> None:
    order, _, seen = order_and_waits()
    side, event = order.new_stream(), FakeEvent(order)
    with side:
        order.launch(seen.append)
        work = Handle()
        order.handed_out(work)
        order.wait_for(work)
        order.queue(1000)  # beside the compute stream
        event.record()
    order.queue(3)
    other = order.new_stream()
    other.wait_event(event)
    assert seen == []
    order.compute.wait_stream(other)
    order.compute.wait_event(event)
    assert seen == [3]
