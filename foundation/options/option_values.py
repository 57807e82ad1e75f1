"""Read the words after a command's name as values of its options, or refuse them in one line."""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from foundation.errors import InputError
from foundation.options.command_help import Option, dataclass_of, field_default, field_hints

EXPECTED = {int: "a whole number", float: "a number", Path: "a path", str: "a text"}
SEE = "(see --help)"


def option_values(words: Sequence[str], options: Iterable[Option]) -> dict[tuple[str, ...], Any]:
    """Return the values that the words give, by the path of their field. Raises InputError for the first word that
    fits no option, and for missing options."""
    table = list(options)
    by_flag = {flag: option for option in table if not option.positional for flag in flags_of(option)}
    values = dict[tuple[str, ...], Any]()
    loose, waiting = list[str](), list(words)
    while waiting:
        word = waiting.pop(0)
        if word == "--":  # no flag comes after it
            loose += waiting
            break
        if not _is_flag(word):
            loose.append(word)
            continue
        name, equals, text = word.partition("=")
        flag = name.replace("_", "-")
        option = by_flag.get(flag)
        if option is None:
            begins = [name for name in by_flag if len(flag) > 3 and name.startswith(flag)]
            close = begins or difflib.get_close_matches(flag, by_flag, 1)
            raise InputError(f"unknown option {name}{f'; did you mean {close[0]}?' if close else ''} {SEE}")
        if option.hint is bool:
            if equals:
                raise InputError(f"{word}: {flag} takes no value {SEE}")
            values[option.field_path] = not flag.startswith("--no-")
            continue
        texts = [text] if equals else []
        while not equals and waiting and not _is_flag(waiting[0]):
            texts.append(waiting.pop(0))
        count = _count(option.hint)
        if len(texts) < (count or 1):
            form = expected(option.hint) if count in (None, 1) else f"{count} values, each {expected(option.hint)}"
            raise InputError(f"{' '.join([flag, *texts])}: expected {form}, got {len(texts) or 'nothing'} {SEE}")
        values[option.field_path] = _value(flag, texts[:count], option.hint)
        loose += [] if count is None else texts[count:]
    values.update(_positional_values(loose, table))
    _require(values, table)
    return values


def _positional_values(loose: Sequence[str], options: Sequence[Option]) -> dict[tuple[str, ...], Any]:
    """Return the values of the words that follow no flag. Raises InputError for more words than there are options."""
    values, remaining = dict[tuple[str, ...], Any](), list(loose)
    for option in options:
        if option.positional and remaining:
            count = _count(option.hint) or len(remaining)
            values[option.field_path] = _value(option.name, remaining[:count], option.hint)
            remaining = remaining[count:]
    if remaining:
        raise InputError(f"unexpected {remaining[0]!r}: it belongs to no option {SEE}")
    return values


def _require(values: Mapping[tuple[str, ...], Any], options: Sequence[Option]) -> None:
    """Raise InputError for required options without a value."""
    missing = [option for option in options if option.required and option.field_path not in values]
    missing.sort(key=lambda option: not option.positional)
    forms = [f"{option.name} {option.value}".rstrip() for option in missing]
    if len(missing) == 1:
        raise InputError(f"{forms[0]} is missing: {_sentence(missing[0].text)} {SEE}")
    if missing:
        raise InputError(f"{', '.join(forms[:-1])} and {forms[-1]} are missing {SEE}")


def with_values(command: type[Any], values: Mapping[tuple[str, ...], Any], default: Any = None) -> Any:
    """Return the dataclass with these values; other fields have those of ``default``, or their own defaults. Raises
    InputError for values that the dataclass refuses."""
    fields = {field_path[0]: value for field_path, value in values.items() if len(field_path) == 1}
    inner: dict[str, dict[tuple[str, ...], Any]] = {}
    for field_path, value in values.items():
        if len(field_path) > 1:
            inner.setdefault(field_path[0], {})[field_path[1:]] = value
    for field in dataclasses.fields(command):
        if field.name in inner:
            present = field_default(field) if default is None else getattr(default, field.name)
            kind = dataclass_of(field_hints(command)[field.name]) if present is None else type(present)
            fields[field.name] = with_values(kind, inner[field.name], present)
    try:
        return command(**fields) if default is None else dataclasses.replace(default, **fields)
    except ValueError as error:
        raise InputError(str(error)) from None


def flags_of(option: Option) -> tuple[str, ...]:
    """Return the spellings of an option: a switch has ``--no-`` before its name, too."""
    name = option.name.removeprefix("--no-").removeprefix("--")
    return (f"--{name}", f"--no-{name}") if option.hint is bool else (f"--{name}",)


def expected(hint: Any) -> str:
    """Describe the value that an option of this type takes, or each of its values."""
    kind = _kind(hint)
    if get_origin(kind) is tuple:
        return expected(get_args(kind)[0])
    if get_origin(kind) is Literal:
        *names, last = map(str, get_args(kind))
        return f"{', '.join(names)} or {last}" if names else last
    return EXPECTED[kind]


def _is_flag(word: str) -> bool:
    return word.startswith("-") and not word[1:2].isdigit() and word[1:2] not in ("", ".")


def _kind(hint: Any) -> Any:
    """Return the type that a value may have beside None."""
    if get_origin(hint) in (Union, UnionType):
        return next(kind for kind in get_args(hint) if kind is not NoneType)
    return hint


def _count(hint: Any) -> int | None:
    """Return the number of values of an option; None for one or more."""
    kind = _kind(hint)
    if get_origin(kind) is tuple:
        arguments = get_args(kind)
        return None if Ellipsis in arguments else len(arguments)
    return 1


def _value(name: str, texts: Sequence[str], hint: Any) -> Any:
    """Return the value of an option. Raises InputError, with ``name``, for a text that is none of its type."""
    if NoneType in get_args(hint) and list(texts) == ["None"]:
        return None
    kind = _kind(hint)
    if get_origin(kind) is tuple:
        return tuple(_single(name, text, get_args(kind)[0]) for text in texts)
    return _single(name, texts[0], kind)


def _single(name: str, text: str, kind: Any) -> Any:
    try:
        if get_origin(kind) is Literal:
            return next(choice for choice in get_args(kind) if str(choice) == text)
        return kind(text)
    except (ValueError, StopIteration):
        raise InputError(f"{name} {text}: expected {expected(kind)} {SEE}") from None


def _sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].rstrip(".")
