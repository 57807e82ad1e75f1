"""The memory that a pass keeps for its backward pass."""

from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor


def held_bytes(activations: Any) -> int:
    """Return the bytes of all storages below a dataclass or tuple, each counted once."""
    storages: dict[int, int] = {}

    def visit(value: Any) -> None:
        if isinstance(value, Tensor):
            storages[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        elif is_dataclass(value):
            for field in fields(value):
                visit(getattr(value, field.name))
        elif isinstance(value, tuple):
            for element in value:
                visit(element)

    visit(activations)
    return sum(storages.values())
