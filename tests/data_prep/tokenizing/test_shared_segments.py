"""What processes tell each other: a segment is found once its ids are there."""

import multiprocessing
import random

import numpy as np

from data_prep.tokenizing import shared_segments
from tests.data_prep.english_text import LINES
from tests.data_prep.models import Models, assert_same


def test_processes_that_learn_at_once(models: Models) -> None:
    """Words that all of them meet for the first time, again and again, each process in its own order."""
    tokenizer = models.fast("reference")
    context = multiprocessing.get_context("fork")
    start = context.Barrier(4)

    def learn(number: int) -> None:
        start.wait()
        for made_up in range(150):
            words = [f"{word}{chr(97 + made_up % 26)}{made_up}" for line in LINES[:30] for word in line.split()]
            random.Random(number).shuffle(words)
            assert_same(tokenizer, [" ".join(words[:300])])

    processes = [context.Process(target=learn, args=[number]) for number in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4


def test_a_segment_is_found_once_its_ids_are_seen() -> None:
    shared = shared_segments.SharedSegments(np.dtype(np.uint16))
    key = np.array([5], np.uint64), np.array([1 << 56], np.uint64)
    other = np.array([6], np.uint64), key[1]
    assert shared.add(*key, np.array([2]), np.array([7, 8], np.uint16)) == [2]
    assert shared.find(*key, 0) == [0]
    seen = len(shared.ids_since(0))
    assert shared.find(*key, seen) == [2]
    assert shared.add(*other, np.array([1]), np.array([9], np.uint16)) == [(2 << 32) + 1]
    assert shared.find(*other, seen) == [0]
    assert shared.ids_since(seen).tolist() == [9]
    assert shared.add(*other, np.array([1]), np.array([9], np.uint16)) == [(2 << 32) + 1]  # not a second time
