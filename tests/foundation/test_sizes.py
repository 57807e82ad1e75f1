"""Numbers and sizes from options and files."""

import math

import pytest

from foundation.errors import InputError
from foundation.sizes import about, duration, parse_bytes, require_array, require_between, require_workers, significant


@pytest.mark.parametrize(
    ("text", "size"),
    [("8GiB", 8 << 30), ("500MB", 500_000_000), ("1.5 kib", 1536), ("17", 17), (".5TiB", 1 << 39), ("2.KB", 2000)],
)
def test_sizes_as_people_write_them(text: str, size: int) -> None:
    assert parse_bytes(text, "--memory-limit") == size


@pytest.mark.parametrize(
    "text",
    ["", "lots", "-1GiB", "1.2.3GiB", "GiB", "1e9", "nan", "inf", "0", "0GiB", "2000PiB", "9" * 400, "٣GiB", "1GiBs"],
)
def test_what_is_no_size_is_refused_with_the_option(text: str) -> None:
    with pytest.raises(InputError, match=r"--memory-limit '.*': expected a size") as error:
        parse_bytes(text, "--memory-limit")
    assert len(str(error.value)) < 120


def test_numbers_out_of_range() -> None:
    require_between(0, 0, 1, "--rate")
    for value in (-1, 2, math.nan, math.inf, -math.inf):
        with pytest.raises(InputError, match=r"--rate .*: expected 0 to 1"):
            require_between(value, 0, 1, "--rate")
    for workers in (-1, 0, 10**9):
        with pytest.raises(InputError, match=rf"--workers {workers}: expected 1 to 4096"):
            require_workers(workers)


@pytest.mark.parametrize(
    ("shape", "complaint"),
    [
        ([1] * 20_000, "20,000 axes"),
        ([-1, 3], r"shape \[-1, 3\], expected whole"),
        ([2.0], "expected whole"),
        ([True], "expected whole"),
        (["3"], "expected whole"),
        ([None], "expected whole"),
        ([1 << 40, 1 << 40], "more than 1 EiB"),
        ([0, 1 << 70], "more than 1 EiB"),
        ([10**4000], "more than 1 EiB"),
    ],
)
def test_shapes_that_no_array_has(shape: list[object], complaint: str) -> None:
    with pytest.raises(InputError, match=rf"^here: .*{complaint}.*; mend it$") as error:
        require_array("here", shape, 4, mend="mend it")
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("shape", [[], [0], [3, 0, 4], [96, 3, 12288, 96, 128]])
def test_shapes_that_arrays_have(shape: list[object]) -> None:
    require_array("here", shape, 4, mend="mend it")


@pytest.mark.parametrize(
    ("seconds", "text", "estimate"),
    [
        (-5, "0.00 s", "0 s"),
        (0.5, "0.50 s", "0 s"),
        (58.99, "58.99 s", "59 s"),
        (60, "1 min 0 s", "1 min 0 s"),
        (3460.4, "57 min 40 s", "57 min 40 s"),
        (3599.6, "1 h 0 min", "1 h 0 min"),
        (4321, "1 h 12 min", "1 h 12 min"),
        (5_000_000, "1,388 h 53 min", "1,388 h 53 min"),
    ],
)
def test_durations(seconds: float, text: str, estimate: str) -> None:
    assert (duration(seconds), about(seconds)) == (text, estimate)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1750, "1,750"),
        (17_500, "17,500"),
        (123_456, "123,000"),
        (17.53, "17.5"),
        (0.013_91, "0.0139"),
        (0, "0"),
        (9.999, "10.0"),
        (-4, "-4.00"),
    ],
)
def test_significant_digits_without_an_exponent(value: float, text: str) -> None:
    assert significant(value, 3) == text
