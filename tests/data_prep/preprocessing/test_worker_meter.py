"""What workers tell arrives in the progress line."""

import multiprocessing
from collections.abc import Iterator

from data_prep.preprocessing.worker_meter import READING, TOKENISING, WorkerMeter, timed
from stage.progress import Meter

FORK = multiprocessing.get_context("fork")


def _work(told: WorkerMeter) -> None:
    told(40)
    told.spent(READING, 1.0)
    told.spent(TOKENISING, 3.0)


def test_processes_are_added_up_and_told_once() -> None:
    told, meter = WorkerMeter(FORK), Meter("tokenise", 400, "bytes", files=2)
    for expected in (80, 160):
        processes = [FORK.Process(target=_work, args=(told,)) for _ in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        told.pass_on(meter)
        told.pass_on(meter)
        assert meter.done == expected
    assert "160 of 400 bytes (40 %), 0 of 2 files" in meter.line()
    assert "limited by tokenising (75 % of the time)" in meter.line()


def test_items_are_timed_while_they_come() -> None:
    meter = Meter("read", 3, "bytes")

    def items() -> Iterator[int]:
        yield from (1, 2, 3)

    assert list(timed(items(), READING, meter)) == [1, 2, 3]
    assert "limited by reading and decompressing (100 % of the time)" in meter.line()
