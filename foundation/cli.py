"""Command lines: each command is a frozen dataclass whose fields are its options and whose ``run`` does the work."""

import dataclasses
import difflib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from foundation import __version__
from foundation.errors import InputError
from foundation.git import commit_of
from foundation.options.command_help import HELP, help_text, options_of, summary, wants_help, wrapped
from foundation.options.completion import bash_completion
from foundation.options.option_values import option_values, with_values

Parsed = TypeVar("Parsed")
COMPLETION = ["--completion", "bash"]
"""Words that ask for a file of completions."""


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
    if words[:2] == COMPLETION:
        print(bash_completion(package, {name: options_of(command) for name, command in commands.items()}, {}), end="")
        return 0
    if (
        status := answer_about_program(
            package, description, {name: summary(command) for name, command in commands.items()}, words
        )
    ) is not None:
        return status
    name = choose(words[0], commands, "command")
    if wants_help(words[1:]):
        print(help_text(f"python -m {package} {name}", commands[name]))
        return 0
    command = parse_options(commands[name], words[1:])
    return command.run()


def answer_about_program(
    package: str, description: str | None, commands: Mapping[str, str], words: Sequence[str]
) -> int | None:
    """Print the commands (``--help``, or no word at all) or the version, if the words ask for it.

    Returns the exit status, or None if the words name a command. ``commands``: a line for each.
    """
    if words[:1] == ["--version"]:
        commit = commit_of()
        print(f"{package} {__version__}" + (f", commit {commit}" if commit else ""))
        return 0
    if words[:1] == COMPLETION[:1]:
        raise InputError(f"{' '.join(words)}: expected {' '.join(COMPLETION)}")
    if words and words[0] not in HELP:
        return None
    print(f"usage: python -m {package} COMMAND [options]\n\n{wrapped(description or '')}\n")
    indent = max(map(len, commands)) + 4
    for name, line in commands.items():
        print(wrapped(f"  {name:{indent - 2}}{line}", indent))
    print("\n" + wrapped(f"python -m {package} COMMAND --help has the options and an example; --version the version."))
    print(wrapped(f"python -m {package} {' '.join(COMPLETION)} prints completions for the shell."))
    return 0 if words else 2


def choose(name: str, table: Iterable[str], kind: str) -> str:
    """Return ``name`` if it is in ``table``. Otherwise raise InputError with the nearest name."""
    names = list(table)
    if name in names:
        return name
    close = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean {close[0]}? There are" if close else "there are"
    raise InputError(f"unknown {kind} {name!r}; {hint} {', '.join(names)}")


def parse_options(command: type[Parsed], words: Sequence[str], *, default: Parsed | None = None) -> Parsed:
    """Return the command with the options that ``words`` give; the others have the values of ``default``, or their own
    defaults. Raises InputError of one line for words that the command does not take.
    """
    parsed: Parsed = with_values(command, option_values(words, options_of(command, default)), default)
    return parsed
