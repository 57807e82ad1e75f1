"""What was read of the samples."""

import dataclasses

import numpy as np
import pytest

from benchmark.training.guards.witness.witnessed_samples import WitnessedSamples, sample_print, token_print
from data_prep.sample_order.token_windows import open_token_windows
from tests.benchmark.tiny import Inputs


@pytest.fixture
def windows(inputs: Inputs) -> WitnessedSamples:
    return WitnessedSamples(open_token_windows(inputs.training, sequence_length=16, num_samples=100, seed=1))


def test_windows_are_what_they_are_without(windows: WitnessedSamples, inputs: Inputs) -> None:
    plain = open_token_windows(inputs.training, sequence_length=16, num_samples=100, seed=1)
    assert len(windows) == len(plain)
    for sample in (0, 99):
        assert (windows.window(sample) == plain.window(sample)).all()
        assert windows.documents(sample) == plain.documents(sample)


def test_sums_do_not_depend_on_who_reads_in_which_order(windows: WitnessedSamples) -> None:
    for sample in range(12):
        windows.window(sample)
    whole = windows.take(range(12))
    for sample in reversed(range(12)):
        windows.window(sample)
    parts = [windows.take(part) for part in ([0, 3, 6, 9], [1, 2, 4, 5], [11, 10, 8, 7])]
    assert tuple(sum(column) % 2**64 for column in zip(*parts, strict=True)) == whole
    with pytest.raises(KeyError):
        windows.take([3])  # nothing is kept


def test_prints_tell_samples_documents_and_tokens_apart(windows: WitnessedSamples) -> None:
    documents, tokens = windows.documents(3), windows.window(3)
    moved = [dataclasses.replace(documents[0], begin=documents[0].begin + 1), *documents[1:]]
    renamed = [dataclasses.replace(documents[0], prefix=documents[0].prefix.with_name("other")), *documents[1:]]
    elsewhere = [dataclasses.replace(one, prefix=one.prefix.parent / "copy" / one.prefix.name) for one in documents]
    assert sample_print(3, elsewhere) == sample_print(3, documents)  # where the files lie makes no difference
    others = (sample_print(4, documents), sample_print(3, moved), sample_print(3, renamed), sample_print(3, documents))
    assert len(set(others)) == 4
    changed = np.where(np.arange(len(tokens)) == 5, tokens + 1, tokens)
    assert len({token_print(3, tokens), token_print(4, tokens), token_print(3, changed)}) == 3
