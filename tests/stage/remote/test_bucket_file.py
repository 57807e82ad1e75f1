"""Objects in buckets: an old TensorStore, and answers that are cut when the size is asked for."""

from pathlib import Path
from typing import Any

import pytest

from stage.errors import InputError
from stage.remote import bucket_file
from stage.remote.bucket_file import BucketFile
from stage.remote.byte_source import ObjectFacts, Passing, described
from stage.remote.object_address import parse_address
from tests.stage.remote.faulty_server import FaultyServer


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    monkeypatch.setattr(bucket_file, "RETRIES_WITHIN", {"max_retries": 0, "initial_delay": "1ms", "max_delay": "1ms"})
    return "s3://ckpt/a"


@pytest.mark.parametrize("every", [2, 3, 5])
def test_a_cut_answer_is_not_taken_for_the_end(every: int, address: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(1000))
    with FaultyServer(tmp_path) as server:
        server.fault = lambda key, number: ("cut", "other_range")[number % 2] if number % every == 0 else None
        source = BucketFile(parse_address(address, server.url))
        asked: list[float] = []
        for _ in range(30):  # it begins anew after each
            try:
                found = source.describe()
            except Passing:
                asked.append(0)
            else:
                assert found.bytes == 1000
        server.fault = lambda key, number: "cut"
        with pytest.raises(InputError, match="cannot be read in 6 tries"):
            described(source, asked.append)


@pytest.mark.parametrize("left", [0, 1, 500, 1000, 2000])
def test_an_object_that_is_replaced_is_told_at_once(left: int, address: str, tmp_path: Path) -> None:
    """Also by a shorter one, of which an answer falls short like one that was cut."""
    (tmp_path / "a").write_bytes(bytes(1000))
    with FaultyServer(tmp_path) as server:
        source = BucketFile(parse_address(address, server.url))
        facts = source.describe()
        (tmp_path / "a").write_bytes(b"x" * left)
        with pytest.raises(InputError, match="ckpt/a: changed while it was read"):
            list(source.pieces(0, facts))


def test_an_answer_that_was_cut_is_not_taken_for_another_object(address: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(1000))
    with FaultyServer(tmp_path) as server:
        source = BucketFile(parse_address(address, server.url))
        facts = source.describe()
        first = server.requests["a"] + 1
        server.fault = lambda key, number: "cut" if number == first else None
        with pytest.raises(Passing, match="OUT_OF_RANGE"):
            list(source.pieces(0, facts))
        server.fault = lambda key, number: "cut"
        with pytest.raises(Passing):
            list(source.pieces(0, facts))


class Saying:
    """A store that fails whatever it is asked, in TensorStore's words."""

    def __init__(self, message: str) -> None:
        self._message = message

    def read(self, key: str, byte_range: slice) -> "Saying":
        return self

    def result(self, timeout: float) -> Any:
        raise ValueError(self._message)


@pytest.mark.parametrize(
    ("message", "is_the_end"),
    [
        ("OUT_OF_RANGE: ... HTTP code 416", True),
        ('FAILED_PRECONDITION: Unexpected Content-Range header received: "bytes 2047-1320/1321"', True),
        ('FAILED_PRECONDITION: Unexpected Content-Range header received: "bytes 12-20/1321"', False),
        ("OUT_OF_RANGE: a cut answer", False),
    ],
)
def test_which_words_mean_that_an_object_has_ended(
    message: str, is_the_end: bool, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = BucketFile(parse_address(address, "http://127.0.0.1:1"))
    monkeypatch.setattr(source, "_store", Saying(message))
    with pytest.raises(InputError if is_the_end else Passing, match="it no longer has 6 bytes" if is_the_end else None):
        list(source.pieces(5, ObjectFacts(6, "00")))


def test_an_old_tensorstore_is_told(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        def read(self, key: str) -> Any:
            raise AssertionError

    source = BucketFile(parse_address(address, "http://127.0.0.1:1"))
    monkeypatch.setattr(source, "_store", Old())
    with pytest.raises(InputError, match=r"from TensorStore 0\.1\.82 on; pip install --upgrade tensorstore"):
        source.describe()
