"""Command lines: each command is a frozen dataclass whose fields are its options and whose ``run`` does the work."""

import contextlib
import dataclasses
import difflib
import gc
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import tyro

from foundation import __version__
from foundation.command_help import HELP, help_text, summary, wants_help
from foundation.errors import InputError
from foundation.git import commit_of

Parsed = TypeVar("Parsed")
VALUES_EXPECTED = {
    r"invalid literal for int\(\) with base 10:": "a whole number",
    "could not convert string to float:": "a number",
}
"""The complaints about values that the parser writes in Python's words, and in ours what it expected."""


class Command(Protocol):
    def run(self) -> int | None:
        """Run the command; return the exit status, None for 0."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class JsonOption:
    """A command whose result scripts can read."""

    json: bool = False
    """Print the result as JSON."""

    def tell(self, result: Any, text: str) -> None:
        """Print ``result`` as JSON, or ``text`` for a person."""
        print(json.dumps(result) if self.json else text)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputOptions(JsonOption):
    """A command that makes an output with a manifest."""

    force: bool = False
    """Replace the output if this command made it."""


def run_subcommand(package: str, description: str | None, commands: Mapping[str, type[Command]]) -> int | None:
    """Parse ``sys.argv`` as ``python -m PACKAGE COMMAND …`` and run the command; return its exit status, None for 0."""
    words = sys.argv[1:]
    if (
        status := told_of_program(
            package, description, {name: summary(command) for name, command in commands.items()}, words
        )
    ) is not None:
        return status
    name = choose(words[0], commands, "command")
    if wants_help(words[1:]):
        print(help_text(f"python -m {package} {name}", commands[name]))
        return 0
    command = one_line_usage_error(lambda: tyro.cli(commands[name], args=words[1:], prog=f"python -m {package} {name}"))
    _require_values(command)
    gc.freeze()  # all imports stay to the end: at exit, searching them for garbage would take 0.05 s
    return command.run()


def told_of_program(
    package: str, description: str | None, commands: Mapping[str, str], words: Sequence[str]
) -> int | None:
    """Print the commands (``--help``, or no word at all) or the version, if the words ask for it.

    Returns the exit status, or None if the words name a command. ``commands``: a line for each.
    """
    if words[:1] == ["--version"]:
        commit = commit_of()
        print(f"{package} {__version__}" + (f", commit {commit}" if commit else ""))
        return 0
    if words and words[0] not in HELP:
        return None
    print(f"usage: python -m {package} COMMAND [options]\n\n{description}\n")
    width = max(map(len, commands)) + 2
    for name, line in commands.items():
        print(f"  {name:{width}}{line}")
    print(f"\npython -m {package} COMMAND --help has the options and an example; --version the version.")
    return 0 if words else 2


def choose(name: str, table: Iterable[str], kind: str) -> str:
    """Return ``name`` if it is in ``table``. Otherwise raise InputError with the nearest name."""
    names = list(table)
    if name in names:
        return name
    close = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean {close[0]}? There are" if close else "there are"
    raise InputError(f"unknown {kind} {name!r}; {hint} {', '.join(names)}")


def _require_values(command: Any) -> None:
    """Raise InputError for a required option that takes several values and was given none."""
    for option in dataclasses.fields(command):
        is_required = option.default is dataclasses.MISSING and option.default_factory is dataclasses.MISSING
        if is_required and getattr(command, option.name) == ():
            raise InputError(f"--{option.name.replace('_', '-')}: expected one value or more, got none (see --help)")


def one_line_usage_error(parse: Callable[[], Parsed]) -> Parsed:
    """Call tyro, and turn the usage error that it would draw in a box into an InputError of one line."""
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            return parse()
    except SystemExit as leaving:
        if not leaving.code:  # --help
            raise
    lines = " ".join(box.getvalue().splitlines()[1:])  # the first line has the title, which says no more
    message = " ".join(re.sub("[╭╮╰╯│|]|[─-]{3,}", " ", lines).split()).partition(" For full helptext")[0]
    if complaint := re.match(r"Error parsing [\w.]+: ", message):  # a value that a dataclass refused, in its own words
        raise InputError(message[complaint.end() :])
    for text, expected in VALUES_EXPECTED.items():
        if value := re.match(rf"Error parsing (\S+): .*{text}.*?'(.*?)'", message):
            raise InputError(f"{value[1]} {value[2]}: expected {expected} (see --help)")
    raise InputError(f"{message} (see --help)")
