"""Help of a command: options with values and defaults, examples that can be pasted, sections left out."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest

from foundation.cli import parse_options
from foundation.options.command_help import help_text, options_of, summary, wants_help
from foundation.options.option_marks import Hidden, OptionName, Positional, Unprefixed


@dataclass(frozen=True)
class Inner:
    """A section."""

    layers: int = 4
    """Blocks."""
    name: Hidden[str] = "hidden"


@dataclass(frozen=True)
class Size:
    """Numbers with a prefix."""

    files: int = 3
    """How many."""


@dataclass(frozen=True)
class Renamed:
    """Do another thing."""

    from_: Annotated[Path | None, OptionName("from")] = None
    """Where it is."""
    size: Size = field(default_factory=Size)


@dataclass(frozen=True)
class Example:
    """Do a thing. And more.

    Example: python -m program do FILE
    --kind a
    """

    files: Positional[tuple[Path, ...]]
    """What is read."""
    kind: Literal["a", "b"] = "a"
    """Which kind."""
    seed: int | None = None
    """A number."""
    watch: bool = True
    """Look at it."""
    rates: tuple[float, float] = (0.5, 1e-5)
    """Two of them."""
    model: Unprefixed[Inner] = field(default_factory=Inner)


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_help_lists_options_with_their_values_and_defaults() -> None:
    assert help_text("python -m program do", Example).splitlines() == [
        "usage: python -m program do PATH … [options]",
        "",
        "Do a thing. And more.",
        "",
        "Example: python -m program do FILE --kind a",
        "",
        "options:",
        "  PATH …                  What is read.",
        "  --kind {a,b}            Which kind. [a]",
        "  --seed N                A number.",
        "  --no-watch              Switches this off: Look at it.",
        "  --rates NUMBER NUMBER   Two of them. [0.5 1e-05]",
        "",
        "model:",
        "  --layers N              Blocks. [4]",
    ]
    assert summary(Example) == "Do a thing."


def test_lines_are_no_longer_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert help_text("python -m program do", Example, sections=()).splitlines() == [
        "usage: python -m program do PATH …",
        "       [options]",
        "",
        "Do a thing. And more.",
        "",
        "Example: python -m program do FILE \\",
        "    --kind a",
        "",
        "options:",
        "  PATH …",
        "        What is read.",
        "  --kind {a,b}",
        "        Which kind. [a]",
        "  --seed N",
        "        A number.",
        "  --no-watch",
        "        Switches this off: Look at it.",
        "  --rates NUMBER NUMBER",
        "        Two of them. [0.5 1e-05]",
        "",
        "--help-all lists 1 more options: model.",
    ]


def test_sections_that_are_left_out_are_counted() -> None:
    shown = help_text("p", Example, sections=())
    assert "--layers" not in shown
    assert shown.endswith("--help-all lists 1 more options: model.")


def test_options_have_the_names_that_are_read() -> None:
    assert [one.name for one in options_of(Renamed)] == ["--from", "--size.files"]
    assert parse_options(Renamed, ["--from", "a", "--size.files", "4"]) == Renamed(Path("a"), Size(4))


def test_values_of_one_that_was_made_are_the_defaults() -> None:
    made = Example((Path("a"),), model=Inner(layers=96))
    assert {one.name: one.default for one in options_of(Example, made)}["--layers"] == "96"


def test_words_that_ask_for_help() -> None:
    assert wants_help(["x", "--help"]) and wants_help(["-h"]) and wants_help(["--help-all"])
    assert not wants_help(["--helpful"])
