"""Marks of a command's fields: how each is written on the command line."""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, TypeVar

Value = TypeVar("Value")


class OptionMark(Enum):
    POSITIONAL = "positional"
    HIDDEN = "hidden"
    UNPREFIXED = "unprefixed"


@dataclass(frozen=True)
class OptionName:
    """Words that differ from the field's name."""

    name: str = ""
    """Name of the option, without its hyphens."""
    metavar: str = ""
    """Placeholder of its value in the help."""


Positional = Annotated[Value, OptionMark.POSITIONAL]
"""A value without a flag before it."""
Hidden = Annotated[Value, OptionMark.HIDDEN]
"""A field that no option sets."""
Unprefixed = Annotated[Value, OptionMark.UNPREFIXED]
"""A dataclass whose options are written without the field's name before theirs."""
