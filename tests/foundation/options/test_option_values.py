"""A command line that is refused: one line names the value, what is expected, and where to read more."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest

from foundation.cli import parse_options
from foundation.errors import InputError
from foundation.options.option_marks import OptionName, Positional


@dataclass(frozen=True)
class _Options:
    folder: Positional[Path]
    """A folder, in so many words that the line would be broken in a box."""
    size: int
    """A number. And more."""
    seed: int | None = None
    kind: Literal["a", "b", "c"] = "a"
    save_at: tuple[int, ...] = ()
    rates: tuple[float, float] = (0.5, 0.5)
    from_: Annotated[Path | None, OptionName("from")] = None
    watch: bool = True


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "PATH and --size N are missing"),
        ("--size 3", "PATH is missing: A folder, in so many words that the line would be broken in a box"),
        ("F --size 3 --rates 1", "--rates 1: expected 2 values, each a number, got 1"),
        ("F --size 3 --from", "--from: expected a path, got nothing"),
        ("F G --size 3", "unexpected 'G': it belongs to no option"),
    ],
)  # fmt: skip
def test_a_fault_is_one_line(words: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        parse_options(_Options, words.split())
    assert str(error.value) == f"{message} (see --help)"


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("F --size 3", {}),
        ("--size=-3 --size 4 -- F", {"size": 4}),
        ("F --size -3 --seed None --kind b", {"size": -3, "kind": "b"}),
        ("F --save-at 1 2 --size 3 --from x --no-watch", {"save_at": (1, 2), "from_": Path("x"), "watch": False}),
        ("--rates 1 -.5 F --size 3 --seed=7 --save_at 5", {"rates": (1.0, -0.5), "seed": 7, "save_at": (5,)}),
    ],
)
def test_words_become_values(words: str, values: dict[str, object]) -> None:
    assert parse_options(_Options, words.split()) == _Options(**{"folder": Path("F"), "size": 3, **values})  # type: ignore[arg-type]


def test_values_that_a_dataclass_refuses_are_bad_input() -> None:
    with pytest.raises(InputError, match=r"^weeks 0: expected at least 1$"):
        parse_options(_Span, ["--length.weeks", "0"])
    assert parse_options(_Span, ["--length.weeks", "3"], default=_Span(_Length(2, 5))) == _Span(_Length(3, 5))


@dataclass(frozen=True)
class _Length:
    weeks: int = 1
    days: int = 0

    def __post_init__(self) -> None:
        if self.weeks < 1:
            raise ValueError(f"weeks {self.weeks}: expected at least 1")


@dataclass(frozen=True)
class _Span:
    length: _Length = field(default_factory=_Length)
