"""Command lines: what is wrong with one is said in one line."""

import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
import tyro

from foundation.cli import one_line_usage_error, run_subcommand
from foundation.errors import InputError, run_command


@dataclass(frozen=True)
class _Options:
    folder: tyro.conf.Positional[Path]
    """A folder, in so many words that the box in which what is missing would be drawn has to break the line."""
    size: int
    """A number."""
    seed: int | None = None
    kind: Literal["a", "b"] = "a"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "^Missing from python -m sums: PATH A folder, .* --size INT A number"),
        ("F --size x", "--size x: expected a whole number"),
        ("F --size 3 --sed 4", "Unrecognized options: --sed, 4 Perhaps you meant: --seed"),
        ("F --size 3 --kind c", "invalid choice 'c' for argument '--kind'"),
    ],
)
def test_usage_errors_are_one_line(words: str, message: str) -> None:
    with pytest.raises(InputError, match=f"{message}.*see --help") as error:
        one_line_usage_error(lambda: tyro.cli(_Options, args=words.split(), prog="python -m sums"))
    assert "\n" not in str(error.value)


@dataclass(frozen=True)
class _Add:
    """Print a sum. Exit status 4 if it is 4."""

    one: int
    other: int = 2
    """The other number."""

    def run(self) -> int | None:
        print(self.one + self.other)
        return 4 if self.one + self.other == 4 else None


@pytest.mark.parametrize(("arguments", "status", "printed"), [(["1"], 0, "3\n"), (["2"], 4, "4\n")], ids=["0", "4"])
def test_a_command_is_parsed_and_run(
    arguments: list[str],
    status: int,
    printed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["sums", "add", "--one", *arguments])
    assert (run_subcommand("sums", "Sums.", {"add": _Add, "again": _Add}) or 0) == status
    gc.unfreeze()
    assert capsys.readouterr().out == printed


@dataclass(frozen=True)
class _Total:
    """Print a sum."""

    first_numbers: tuple[int, ...]
    more: tuple[int, ...] = ()

    def run(self) -> None:
        print(sum(self.first_numbers + self.more))


def test_an_option_of_several_values_has_one_at_least(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, status, printed in (
        (["--first-numbers", "1", "2"], 0, "3\n"),
        (["--first-numbers"], 2, "error: --first-numbers: expected one value or more, got none (see --help)\n"),
    ):
        monkeypatch.setattr("sys.argv", ["sums", "total", *words])
        with pytest.raises(SystemExit) as leaving:
            run_command(lambda: run_subcommand("sums", "Sums.", {"add": _Add, "total": _Total}))
        gc.unfreeze()
        captured = capsys.readouterr()
        assert (leaving.value.code, captured.out + captured.err) == (status, printed)
