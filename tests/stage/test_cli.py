"""Command lines: what is wrong with one is said in one line."""

import gc
from dataclasses import dataclass

import pytest

from stage.cli import main, one_line_usage_error
from stage.errors import InputError


def test_usage_errors_are_one_line() -> None:
    import tyro

    @dataclass
    class Options:
        size: int

    with pytest.raises(InputError, match=r"--size.*\(see --help\)") as error:
        one_line_usage_error(lambda: tyro.cli(Options, args=["--size", "x"]))
    assert "\n" not in str(error.value)
    assert one_line_usage_error(lambda: tyro.cli(Options, args=["--size", "3"])) == Options(3)


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
    with pytest.raises(SystemExit) as leaving:
        main("sums", "Sums.", {"add": _Add, "again": _Add})
    gc.unfreeze()
    assert leaving.value.code == status
    assert capsys.readouterr().out == printed


def test_help_and_unknown_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for word, status, phrase in (("--help", 0, "usage: python -m sums"), ("subtract", 2, "error: ")):
        monkeypatch.setattr("sys.argv", ["sums", word])
        with pytest.raises(SystemExit) as leaving:
            main("sums", "Sums.", {"add": _Add, "again": _Add})
        assert leaving.value.code == status
        captured = capsys.readouterr()
        assert (captured.err if status else captured.out).startswith(phrase)
        assert len(captured.err.splitlines()) == (1 if status else 0)
