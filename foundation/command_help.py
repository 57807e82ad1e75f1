"""Make the text of ``--help``: a command's description, its own options with their defaults, and the place of the
others.

A command is a dataclass; the string below a field is its help text. tyro's own help would show all options of a command
that takes a whole run, in boxes that cannot be copied.
"""

import ast
import dataclasses
import inspect
import textwrap
import typing
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import tyro

HELP, HELP_ALL = ("-h", "--help"), "--help-all"
WIDTH, INDENT = 100, 26
METAVARS = {int: "N", float: "NUMBER", str: "TEXT", Path: "PATH"}
POSITIONAL, SUPPRESSED, UNPREFIXED = (
    marked.__metadata__[0]  # type: ignore[attr-defined]
    for marked in (tyro.conf.Positional[int], tyro.conf.Suppress[int], tyro.conf.OmitArgPrefixes[int])
)


@dataclasses.dataclass(frozen=True)
class Option:
    """A field of a command, or of a dataclass within it."""

    section: str
    """Name of the field that holds the dataclass; empty for the command's own options."""
    name: str
    """Name as written on the command line: ``--log-interval``, or ``FILE`` for a positional option."""
    value: str
    """Placeholder of its value, such as ``PATH``; empty for a switch."""
    text: str
    default: str
    """Default value as text; empty if there is none to show."""
    positional: bool


def wants_help(words: Sequence[str]) -> bool:
    return any(word in (*HELP, HELP_ALL) for word in words)


def help_text(
    prog: str,
    command: type[Any],
    *,
    defaults: Any = None,
    sections: Collection[str] | None = None,
    more: str = "",
    offered: Callable[[Option], bool] | None = None,
) -> str:
    """Return the help of ``command``.

    ``defaults``: an instance whose values are the defaults. ``sections``: sections whose options are listed; None lists
    all. ``more``: text after the program's name. ``offered``: whether the command has an option; None: it has all.
    """
    options = [option for option in options_of(command, defaults) if offered is None or offered(option)]
    listed = [option for option in options if sections is None or not option.section or option.section in sections]
    named = "".join(f" {option.name}" for option in options if option.positional)
    lines = [f"usage: {prog}{more}{named} [options]", "", _description(command), ""]
    for section in dict.fromkeys(option.section for option in listed):
        lines.append(f"{section.replace('_', ' ') or 'options'}:")
        lines += [line for option in listed if option.section == section for line in _lines(option)]
        lines.append("")
    hidden = [option for option in options if option not in listed]
    if hidden:
        names = ", ".join(dict.fromkeys(option.section.replace("_", " ") for option in hidden))
        lines.append(f"{HELP_ALL} lists {len(hidden)} more options: {names}.")
    return "\n".join(lines).rstrip()


def summary(command: type[Any]) -> str:
    """Return the first sentence of a command's description."""
    return _description(command).partition("\n\n")[0].replace("\n", " ").partition(". ")[0].rstrip(".") + "."


def _description(command: type[Any]) -> str:
    """Return the command's docstring; the lines of an example end in backslashes, so that it can be pasted."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    joined = (
        paragraph.replace("\n", " \\\n    ") if paragraph.startswith("Example: ") else paragraph
        for paragraph in paragraphs
    )
    return "\n\n".join(joined)


def _lines(option: Option) -> list[str]:
    head = f"  {option.name} {option.value}".rstrip()
    text = f"{option.text} [{option.default}]" if option.default else option.text
    paragraphs = textwrap.wrap(" ".join(text.split()), WIDTH - INDENT, break_on_hyphens=False) or [""]
    lines = [f"{'':{INDENT}}{line}" for line in paragraphs]
    return [head, *lines] if len(head) >= INDENT - 1 else [f"{head:{INDENT}}{paragraphs[0]}", *lines[1:]]


def options_of(
    command: type[Any], defaults: Any = None, section: str = "", prefix: str | None = ""
) -> Iterator[Option]:
    """Yield the options of a dataclass, then those of dataclasses within it.

    ``prefix``: stands before their names; None: before none of them, those of inner dataclasses neither.
    """
    hints, texts = typing.get_type_hints(command, include_extras=True), _texts(command)
    inner: list[tuple[str, Any, Any, str | None]] = []
    for field in dataclasses.fields(command):
        hint, marks = hints[field.name], []
        while hasattr(hint, "__metadata__"):
            marks += hint.__metadata__
            hint = hint.__origin__
        hint = _without_none(hint)
        value = getattr(defaults, field.name) if defaults is not None else _default(field)
        named = next((mark.name for mark in marks if getattr(mark, "name", None)), field.name)
        if dataclasses.is_dataclass(hint):
            within = None if prefix is None or UNPREFIXED in marks else f"{prefix}{named}."
            inner.append((field.name, hint, value, within))
        elif SUPPRESSED not in marks:
            text = texts.get(field.name, "")
            yield _option(section, f"{prefix or ''}{named}", hint, value, text, POSITIONAL in marks)
    for name, kind, inner_value, within in inner:
        yield from options_of(kind, inner_value, {"config": "run", "options": section}.get(name, name), within)


def _without_none(hint: Any) -> Any:
    """Return the dataclass of ``Dataclass | None``; any other hint as it is."""
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    return kinds[0] if len(kinds) == 1 and dataclasses.is_dataclass(kinds[0]) else hint


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def _option(section: str, name: str, hint: Any, default: Any, text: str, positional: bool) -> Option:
    flag = f"--{name.replace('_', '-')}"
    if hint is bool:
        text = f"Switches this off: {text}" if default else text
        flag, value, default = (f"--no-{flag[2:]}" if default else flag), "", None
    else:
        value = _value(hint, name)
    if positional:
        flag, value = f"{value}", ""
    default_text = "" if default in (None, (), "") else _value_text(default)
    return Option(section, flag, value, text, default_text, positional)


def _value_text(default: Any) -> str:
    if isinstance(default, tuple | list):
        return " ".join(map(_value_text, default))
    return f"{default:g}" if isinstance(default, float) and default < 1e-3 else str(default)


def _value(hint: Any, name: str) -> str:
    """Return the placeholder of an option's value."""
    arguments = [argument for argument in get_args(hint) if argument is not NoneType]
    if get_origin(hint) is Literal:
        return f"{{{','.join(map(str, arguments))}}}"
    if get_origin(hint) in (Union, UnionType):
        return _value(arguments[0], name)
    if get_origin(hint) in (tuple, list):
        value = _value(arguments[0], name)
        return f"{value} …" if Ellipsis in arguments or len(arguments) == 1 else " ".join([value] * len(arguments))
    return METAVARS.get(hint, name.upper())


def _texts(command: type[Any]) -> dict[str, str]:
    """Return the strings below the fields of a dataclass, by field."""
    texts: dict[str, str] = {}
    for kind in reversed(command.__mro__[:-1]):
        if not dataclasses.is_dataclass(kind):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
        assert isinstance(body, ast.ClassDef)
        for line, below in zip(body.body, body.body[1:], strict=False):
            if (
                isinstance(line, ast.AnnAssign)
                and isinstance(line.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
            ):
                texts[line.target.id] = str(below.value.value)
    return texts
