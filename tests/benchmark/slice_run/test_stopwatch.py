import torch

from benchmark.slice_run.stopwatch import MOST_CALLS, REPETITIONS, seconds_for, seconds_per_call, synchronize

CPU = torch.device("cpu")


def test_short_calls_are_repeated_and_counted_out() -> None:
    calls: list[int] = []
    seconds = seconds_per_call(CPU, lambda: calls.append(1))
    assert 0 < seconds < 0.01
    assert 4 + REPETITIONS < len(calls) <= 4 + REPETITIONS * MOST_CALLS


def test_long_calls_are_made_once_a_repetition() -> None:
    calls: list[int] = []
    size = 700

    def long() -> None:
        calls.append(1)
        for _ in range(4):
            torch.zeros(size, size) @ torch.zeros(size, size)

    seconds = seconds_for(CPU, 2, long)
    assert seconds > 0
    assert len(calls) == 2
    synchronize(CPU)
