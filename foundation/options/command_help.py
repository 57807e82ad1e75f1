"""Make the text of ``--help``: a command's description, its own options with their defaults, and the place of the
others.

A command is a dataclass; the string below a field is its help text.
"""

import ast
import dataclasses
import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from foundation.options.option_marks import OptionMark, OptionName
from foundation.plain_text import PAGE_COLUMNS, screen_width

HELP, HELP_ALL = ("-h", "--help"), "--help-all"
INDENT, NARROW_INDENT = 26, 8
"""Columns of the margin of the options' texts where there is room, or not."""
METAVARS = {int: "N", float: "NUMBER", str: "TEXT", Path: "PATH"}


@dataclasses.dataclass(frozen=True)
class Option:
    """A field of a command, or of a dataclass within it."""

    field_path: tuple[str, ...]
    """Names of the fields that lead to the value, from the command's own on."""
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
    required: bool
    hint: Any
    """Type of its value, or of its values."""


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
    lines = [wrapped(f"usage: {prog}{more}{named} [options]", 7), "", _description(command), ""]
    for section in dict.fromkeys(option.section for option in listed):
        lines.append(f"{section.replace('_', ' ') or 'options'}:")
        lines += [line for option in listed if option.section == section for line in _lines(option)]
        lines.append("")
    hidden = [option for option in options if option not in listed]
    if hidden:
        names = ", ".join(dict.fromkeys(option.section.replace("_", " ") for option in hidden))
        lines.append(wrapped(f"{HELP_ALL} lists {len(hidden)} more options: {names}."))
    return "\n".join(lines).rstrip()


def help_width() -> int:
    """Return the columns of a help text: those of the terminal or of COLUMNS, within bounds that can be read."""
    return min(PAGE_COLUMNS, screen_width())


def wrapped(text: str, indent: int = 0) -> str:
    """Return one paragraph in lines of the help's width; all but the first are indented."""
    return "\n".join(
        textwrap.wrap(
            text, help_width(), subsequent_indent=" " * indent, break_on_hyphens=False, break_long_words=False
        )
    )


def summary(command: type[Any]) -> str:
    """Return the first sentence of a command's description."""
    return _paragraphs(command)[0].partition(". ")[0].rstrip(".") + "."


def _paragraphs(command: type[Any]) -> list[str]:
    """Return the paragraphs of the command's docstring, each in one line; an example is one."""
    text = re.sub(r"\sExample: ", "\n\nExample: ", inspect.cleandoc(command.__doc__ or ""))
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph.strip()]


def _description(command: type[Any]) -> str:
    """Return the command's docstring; the lines of an example end in backslashes, so that it can be pasted."""
    return "\n\n".join(
        _example(paragraph) if paragraph.startswith("Example: ") else wrapped(paragraph)
        for paragraph in _paragraphs(command)
    )


def _example(command: str) -> str:
    lines = textwrap.wrap(
        command, help_width() - 2, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False
    )
    return " \\\n".join(lines)


def _lines(option: Option) -> list[str]:
    width = help_width()
    indent = INDENT if width >= 80 else NARROW_INDENT
    head = f"  {option.name} {option.value}".rstrip()
    text = f"{option.text} [{option.default}]" if option.default else option.text
    if len(head) > width and option.value.startswith("{"):  # many names, which are listed in the text
        names, _, more = option.value.removeprefix("{").partition("}")
        head, text = f"  {option.name} NAME{more}", f"{text} NAME: {names.replace(',', ', ')}."
    text_lines = textwrap.wrap(
        " ".join(text.replace("``", "").split()), width - indent, break_on_hyphens=False, break_long_words=False
    ) or [""]
    lines = [f"{'':{indent}}{line}" for line in text_lines]
    return [head, *lines] if len(head) >= indent - 1 else [f"{head:{indent}}{text_lines[0]}", *lines[1:]]


def options_of(
    command: type[Any],
    defaults: Any = None,
    section: str = "",
    prefix: str | None = "",
    field_path: tuple[str, ...] = (),
) -> Iterator[Option]:
    """Yield the options of a dataclass, then those of dataclasses within it.

    ``prefix``: stands before their names; None: before none of them, those of inner dataclasses neither.
    ``field_path``: names of the fields that lead to the dataclass.
    """
    hints, texts = field_hints(command), _texts(command)
    inner: list[tuple[str, Any, Any, str | None]] = []
    for field in dataclasses.fields(command):
        hint, marks = hints[field.name], []
        while hasattr(hint, "__metadata__"):
            marks += hint.__metadata__
            hint = hint.__origin__
        if OptionMark.HIDDEN in marks:
            continue
        value = getattr(defaults, field.name) if defaults is not None else field_default(field)
        renamed = next((mark for mark in marks if isinstance(mark, OptionName)), OptionName())
        name = renamed.name or field.name
        if dataclass_of(hint) is not None:
            within = None if prefix is None or OptionMark.UNPREFIXED in marks else f"{prefix}{name}."
            inner.append((field.name, hint, value, within))
        else:
            positional, text = OptionMark.POSITIONAL in marks, texts.get(field.name, "")
            option = _option(section, f"{prefix or ''}{name}", hint, value, text, positional, renamed.metavar)
            required = defaults is None and _is_required(field)
            yield dataclasses.replace(option, field_path=(*field_path, field.name), required=required)
    for name, hint, inner_value, within in inner:
        inner_section = {"config": "run", "options": section}.get(name, name)
        kind = dataclass_of(hint) if inner_value is None else type(inner_value)
        for option in options_of(kind, inner_value, inner_section, within, (*field_path, name)):
            # nothing of a dataclass that may be missing is required
            yield dataclasses.replace(option, required=option.required and NoneType not in get_args(hint))


def field_hints(command: type[Any]) -> dict[str, Any]:
    """Return the types of a dataclass's fields, with their marks."""
    return typing.get_type_hints(command, include_extras=True)


def dataclass_of(hint: Any) -> Any:
    """Return the dataclass of a field's type, also of ``Dataclass | None``; None for a value."""
    while hasattr(hint, "__metadata__"):
        hint = hint.__origin__
    kinds = [kind for kind in get_args(hint) if kind is not NoneType] or [hint]
    return kinds[0] if len(kinds) == 1 and dataclasses.is_dataclass(kinds[0]) else None


def _is_required(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def field_default(field: "dataclasses.Field[Any]") -> Any:
    """Return a field's default; None if it has none."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def _option(section: str, name: str, hint: Any, default: Any, text: str, positional: bool, metavar: str) -> Option:
    flag = f"--{name.replace('_', '-')}"
    if hint is bool:
        text = f"Switches this off: {text}" if default else text
        flag, value, default = (f"--no-{flag[2:]}" if default else flag), "", None
    else:
        value = metavar or _value(hint, name)
    if positional:
        flag, value = f"{value}", ""
    default_text = "" if default in (None, (), "") else _value_text(default)
    return Option((), section, flag, value, text, default_text, positional, False, hint)


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
