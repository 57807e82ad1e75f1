"""Objects in buckets: an old TensorStore, and answers that are cut when the size is asked for."""

from pathlib import Path
from typing import Any

import pytest

from stage.errors import InputError
from stage.remote import bucket_file
from stage.remote.bucket_file import BucketFile
from stage.remote.byte_source import Passing, described
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


def test_an_old_tensorstore_is_told(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        def read(self, key: str) -> Any:
            raise AssertionError

    source = BucketFile(parse_address(address, "http://127.0.0.1:1"))
    monkeypatch.setattr(source, "_store", Old())
    with pytest.raises(InputError, match=r"from TensorStore 0\.1\.82 on; pip install --upgrade tensorstore"):
        source.describe()
