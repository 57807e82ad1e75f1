"""Command lines: what is wrong with one is said in one line."""

import gc
from dataclasses import dataclass

import pytest

from foundation.cli import run_subcommand
from foundation.errors import run_command


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
        (["--first-numbers"], 2, "error: --first-numbers: expected a whole number, got nothing (see --help)\n"),
    ):
        monkeypatch.setattr("sys.argv", ["sums", "total", *words])
        with pytest.raises(SystemExit) as leaving:
            run_command(lambda: run_subcommand("sums", "Sums.", {"add": _Add, "total": _Total}))
        gc.unfreeze()
        captured = capsys.readouterr()
        assert (leaving.value.code, captured.out + captured.err) == (status, printed)
