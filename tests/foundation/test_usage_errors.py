"""A command line that is refused: one line names the value, what is expected, and where to read more."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
import tyro

from foundation.cli import parse_options
from foundation.command_help import options_of
from foundation.errors import InputError
from foundation.usage_errors import usage_complaint


@dataclass(frozen=True)
class _Options:
    folder: tyro.conf.Positional[Path]
    """A folder, in so many words that the box of the parser has to break the line."""
    size: int
    """A number. And more."""
    seed: int | None = None
    kind: Literal["a", "b", "c"] = "a"
    save_at: tuple[int, ...] = ()
    rates: tuple[float, float] = (0.5, 0.5)
    from_: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    watch: bool = True


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "PATH and --size N are missing"),
        ("F", "--size N is missing: A number"),
        ("--size 3", "PATH is missing: A folder, in so many words that the box of the parser has to break the line"),
        ("F --size x", "--size x: expected a whole number"),
        ("F --size=1.5", "--size 1.5: expected a whole number"),
        ("F --size", "--size: expected a whole number, got nothing"),
        ("F --size --watch", "--size: expected a whole number, got nothing"),
        ("F --size 3 --sed 4", "unknown option --sed; did you mean --seed?"),
        ("F --size 3 --qqq", "unknown option --qqq"),
        ("F --size 3 --seed x", "--seed x: expected a whole number"),
        ("F --size 3 --kind d", "--kind d: expected a, b or c"),
        ("F --size 3 --save-at 1 b", "--save-at b: expected a whole number"),
        ("F --size 3 --save_at b", "--save-at b: expected a whole number"),
        ("F --size 3 --rates 1", "--rates 1: expected 2 values, each a number, got 1"),
        ("F --size 3 --from", "--from: expected a path, got nothing"),
        ("F --size 3 --no-watch=1", "--no-watch=1: --no-watch takes no value"),
        ("F G --size 3", "unexpected 'G': it belongs to no option"),
        ("F --size 3 --watch no", "unexpected 'no': it belongs to no option"),
    ],
)  # fmt: skip
def test_a_fault_is_one_line(words: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        parse_options(_Options, words.split(), "python -m sums")
    assert str(error.value) == f"{message} (see --help)"


@pytest.mark.parametrize(
    "words",
    [
        "F --size 3",
        "--size=-3 F",
        "F --size -3 --seed None",
        "--save-at 1 2 --size 3 --from x F",
        "--rates 1 -.5 F --size 1",
    ],
)
def test_the_parser_and_the_table_of_options_accept_the_same(words: str) -> None:
    if "F" in words.split()[-1:] or "--save-at" not in words:
        assert parse_options(_Options, words.split(), "python -m sums").folder == Path("F")
    assert usage_complaint(words.split(), options_of(_Options)) == ""
