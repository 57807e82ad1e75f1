"""A stranger's JSON as a frozen dataclass: every field of its type, nothing more, nothing made up."""

import math
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from stage.errors import InputError

Made = TypeVar("Made")
NOT_FINITE = ("nan", "inf", "-inf")
"""How numbers are written that JSON does not have."""
MOST_SHOWN = 60
LARGEST = (1 << 63) - 1
WORDS: dict[Any, str] = {int: "a whole number", float: "a number", str: "text", bool: "true or false", Path: "a path"}


def dataclass_from_json(kind: type[Made], found: Any, where: str) -> Made:
    """``found`` as a ``kind``; fields that are missing have their defaults.

    ``where``: file and field, for messages. Raises InputError for a field that is unknown, missing without a default,
    or of another type; and whatever the dataclass itself refuses.
    """
    assert is_dataclass(kind)
    known = {field.name: field for field in fields(kind) if field.init}
    if not isinstance(found, Mapping):
        raise InputError(f"{where}: got {_shown(found)}; expected an object with {', '.join(known)}")
    unknown = [name for name in found if name not in known]
    missing = [
        name
        for name, field in known.items()
        if name not in found and field.default is MISSING and field.default_factory is MISSING
    ]
    if unknown or missing:
        what = f"unknown field {_shown(unknown[0])}" if unknown else f"{missing[0]} is missing"
        raise InputError(f"{where}: {what}; expected {', '.join(known)}, as this version of the code writes them")
    hints = typing.get_type_hints(kind)
    return kind(**{name: value_from_json(hints[name], value, f"{where}.{name}") for name, value in found.items()})


def value_from_json(hint: Any, found: Any, where: str) -> Any:
    """``found`` as a value of the type ``hint``: plain ones, Literal, X | None, tuple, Mapping and dataclasses."""
    if hint is Any:
        return found
    if is_dataclass(hint):
        return dataclass_from_json(typing.cast(Any, hint), found, where)
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return value_from_json(inner[0], found, where)
    if origin is typing.Literal:
        if found in inner and type(found) in map(type, inner):
            return found
        raise InputError(f"{where}: got {_shown(found)}; expected one of {', '.join(map(str, inner))}")
    if origin in (types.UnionType, typing.Union):
        (other,) = (one for one in inner if one is not types.NoneType)
        return None if found is None else value_from_json(other, found, where)
    if origin is tuple and isinstance(found, list):
        many = inner[-1] is Ellipsis
        if not many and len(found) != len(inner):
            raise InputError(f"{where}: got {len(found)} values; expected {len(inner)}")
        hints = [inner[0]] * len(found) if many else inner
        pairs = zip(hints, found, strict=True)
        return tuple(value_from_json(one, value, f"{where}[{place}]") for place, (one, value) in enumerate(pairs))
    if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(found, dict):
        return {name: value_from_json(inner[1], value, f"{where}.{name}") for name, value in found.items()}
    return _plain(hint, found, where)


def _plain(hint: Any, found: Any, where: str) -> Any:
    if hint is float and (type(found) in (int, float) or found in NOT_FINITE):
        return _float(found, where)
    if hint is Path and isinstance(found, str) and "\0" not in found:
        return Path(found)
    if hint is int and type(found) is int and not -LARGEST <= found <= LARGEST:
        raise InputError(f"{where}: got {_shown(found)}; expected a whole number of at most 63 bits")
    if type(found) is hint and hint is not float:
        return found
    raise InputError(f"{where}: got {_shown(found)}; expected {WORDS.get(hint, 'a list')}")


def _float(found: Any, where: str) -> float:
    try:
        return float(found)
    except OverflowError:
        raise InputError(f"{where}: got a number of {len(str(found))} digits; expected one that is a float") from None


def float_as_json(value: float) -> float | str:
    """What :func:`value_from_json` reads as the same float, to the bit (any NaN is the same)."""
    return value if math.isfinite(value) else NOT_FINITE[0 if math.isnan(value) else 1 if value > 0 else 2]


def _shown(found: Any) -> str:
    text = repr(found)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
