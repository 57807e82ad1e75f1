"""The filter's process, without a process."""

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from data_prep.preprocessing.filter_process import LENGTH_BYTES, answer, kept, serve


def framed(value: Any) -> bytes:
    content = json.dumps(value).encode()
    return len(content).to_bytes(LENGTH_BYTES, "little") + content


def test_serves_until_there_are_no_requests(tmp_path: Path) -> None:
    content = b"import filters\ndef f(text):\n    return text[1:] or False\n"
    (tmp_path / "filters.py").write_bytes(content)
    answers = io.BytesIO()
    requests = io.BytesIO(framed(["abc", "d"]) + framed(["xy"]))
    serve(tmp_path / "filters.py", "f", hashlib.md5(content).hexdigest(), requests, answers)
    assert answers.getvalue() == framed({"texts": ["bc", None]}) + framed({"texts": ["y"]})


def test_results_of_a_filter() -> None:
    assert (kept(True, "a"), kept(False, "a"), kept(None, "a"), kept("b", "a")) == ("a", None, None, "b")
    for wrong in (0, 1, b"a", (), 1.0):
        with pytest.raises(TypeError, match="expected True, False, None or a text"):
            kept(wrong, "a")


def test_the_place_of_an_error() -> None:
    found = answer(lambda text: 1 // len(text) > 0, ["a", "b", "", "c"])
    assert found["place"] == 2
    assert found["error"].startswith("ZeroDivisionError: integer division or modulo by zero (test_filter_process.py:")
