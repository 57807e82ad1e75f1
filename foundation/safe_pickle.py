"""Load pickles written by strangers: only named types are built, and memory is bounded by the pickle's length."""

import io
import pickle
import pickletools
from collections.abc import Mapping
from typing import Any

from foundation.errors import first_line

SIZED = {"PUT", "BINPUT", "LONG_BINPUT", "FRAME"}
"""Operations whose argument determines memory taken by the unpickler; no honest pickle of n bytes has one above n."""


class UnsafePickle(ValueError):
    """A pickle that is damaged, or would build other things than plain values and known types."""


def load_pickle(content: bytes, known: Mapping[tuple[str, str], Any] | None = None) -> Any:
    """Return the content of a pickle: dictionaries, lists, tuples, texts and numbers, and objects of ``known``.

    ``known``: classes and functions that the pickle may name, by module and name. Tensors become None. Raises
    UnsafePickle for everything else; nothing is imported, and only known functions are called.
    """
    try:
        for operation, argument, _ in pickletools.genops(content):
            if operation.name in SIZED and argument is not None and argument > len(content):
                raise ValueError(f"{operation.name} {argument} in {len(content)} bytes")
        return _Unpickler(io.BytesIO(content), known or {}).load()
    except Exception as error:  # a damaged pickle can raise anything
        raise UnsafePickle(first_line(error)) from error


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, known: Mapping[tuple[str, str], Any]) -> None:
        super().__init__(file)
        self._known = known

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._known:
            raise ValueError(f"it names {module}.{name}, which is not known here and could run code")
        return self._known[module, name]

    def persistent_load(self, identifier: Any) -> Any:
        """Return None for the values of a tensor, which ``torch.save`` puts here."""
        return None
