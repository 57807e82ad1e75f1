"""Explain in one line why a command line was refused, by the table of the command's options."""

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from foundation.command_help import Option

EXPECTED = {int: "a whole number", float: "a number", Path: "a path", str: "a text"}
SEE = "(see --help)"


def usage_complaint(words: Sequence[str], options: Iterable[Option]) -> str:
    """Return the first fault of the words after a command's name; empty if there is none in their form."""
    table = list(options)
    by_flag = {flag: option for option in table if not option.positional for flag in flags_of(option)}
    loose, waiting, given = list[str](), list(words), set[str]()
    while waiting:
        word = waiting.pop(0)
        if not _is_flag(word):
            loose.append(word)
            continue
        name, equals, text = word.partition("=")
        flag = name.replace("_", "-")
        option = by_flag.get(flag)
        if option is None:
            close = difflib.get_close_matches(flag, by_flag, 1)
            return f"unknown option {name}{f'; did you mean {close[0]}?' if close else ''} {SEE}"
        given.add(option.name)
        values = [text] if equals else []
        while not equals and waiting and not _is_flag(waiting[0]):
            values.append(waiting.pop(0))
        count = 0 if option.hint is bool else _count(option.hint)
        if count == 0 and equals:
            return f"{word}: {flag} takes no value {SEE}"
        if len(values) < (1 if count is None else count):
            wanted = expected(option.hint) if count in (None, 1) else f"{count} values, each {expected(option.hint)}"
            return (
                f"{' '.join([flag, *values])}: expected {wanted}, got {'nothing' if not values else len(values)} {SEE}"
            )
        loose += [] if count is None else values[count:]
        for value in values[:count]:
            if not _fits(value, option.hint):
                return f"{flag} {value}: expected {expected(option.hint)} {SEE}"
    return _loose_complaint(loose, table) or _missing_complaint(given, loose, table)


def _loose_complaint(loose: Sequence[str], options: Sequence[Option]) -> str:
    """Return the fault of the words that belong to no option."""
    remaining = list(loose)
    for option in (option for option in options if option.positional):
        count = _count(option.hint)
        values, remaining = (remaining, []) if count is None else (remaining[:count], remaining[count:])
        for value in values:
            if not _fits(value, option.hint):
                return f"{option.name} {value}: expected {expected(option.hint)} {SEE}"
    return f"unexpected {remaining[0]!r}: it belongs to no option {SEE}" if remaining else ""


def _missing_complaint(given: Iterable[str], loose: Sequence[str], options: Sequence[Option]) -> str:
    names = set(given)
    positional = [option for option in options if option.positional]
    missing = [option for option in options if option.required and not option.positional and option.name not in names]
    missing = [option for option in positional[len(loose) :] if option.required] + missing
    if not missing:
        return ""
    forms = [f"{option.name} {option.value}".rstrip() for option in missing]
    if len(missing) == 1:
        return f"{forms[0]} is missing: {_sentence(missing[0].text)} {SEE}"
    return f"{', '.join(forms[:-1])} and {forms[-1]} are missing {SEE}"


def flags_of(option: Option) -> tuple[str, ...]:
    """Return the spellings of an option: a switch has ``--no-`` before its name, too."""
    name = option.name.removeprefix("--no-").removeprefix("--")
    return (f"--{name}", f"--no-{name}") if option.hint is bool else (f"--{name}",)


def expected(hint: Any) -> str:
    """Describe the value that an option of this type takes, or each of its values."""
    kinds = _kinds(hint)
    if len(kinds) == 1 and get_origin(kinds[0]) in (tuple, list):
        return expected(get_args(kinds[0])[0])
    if len(kinds) == 1 and get_origin(kinds[0]) is Literal:
        *names, last = map(str, get_args(kinds[0]))
        return f"{', '.join(names)} or {last}" if names else last
    return " or ".join(dict.fromkeys(EXPECTED.get(kind, "a value") for kind in kinds))


def _is_flag(word: str) -> bool:
    return word.startswith("-") and not word[1:2].isdigit() and word[1:2] not in ("", ".")


def _kinds(hint: Any) -> list[Any]:
    """Return the types that a value may have beside None."""
    if get_origin(hint) in (Union, UnionType):
        return [kind for kind in get_args(hint) if kind is not NoneType]
    return [hint]


def _count(hint: Any) -> int | None:
    """Return the number of values of an option; None for one or more."""
    kind = _kinds(hint)[0]
    if get_origin(kind) in (tuple, list):
        arguments = get_args(kind)
        return None if Ellipsis in arguments or get_origin(kind) is list else len(arguments)
    return 1


def _fits(text: str, hint: Any) -> bool:
    """Return whether the text is a value of this type, as far as its form goes."""
    if get_origin(hint) in (Union, UnionType):
        return text == "None" or any(_fits(text, kind) for kind in _kinds(hint))
    if get_origin(hint) in (tuple, list):
        return any(_fits(text, kind) for kind in get_args(hint) if kind is not Ellipsis)
    if get_origin(hint) is Literal:
        return text in map(str, get_args(hint))
    if hint not in EXPECTED:
        return True
    try:
        hint(text)
    except ValueError:
        return False
    return True


def _sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].rstrip(".")
