"""Read a system description, ``systems/NAME.json``, with its line numbers."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foundation.regular_files import UnfitFile, read_regular

MOST_BYTES = 1 << 20
MOST_COUNT = 10**9
"""Largest number of machines, or of parts in a machine."""


@dataclass(frozen=True)
class SystemDescription:
    """Content of a description. ``content`` is empty if the file cannot be read; ``problem`` says why."""

    path: Path
    content: Mapping[str, Any]
    problem: str | None = None
    problem_line: int = 1
    repeated: Sequence[str] = ()
    """Fields that the file contains twice."""
    constants: Sequence[str] = ()
    """Values that JSON does not have: NaN, Infinity and -Infinity."""
    text: str = field(default="", repr=False)

    def line(self, name: str) -> int:
        """Return the line of a field; 1 if the file does not have the field."""
        match = re.search(rf'"{re.escape(name)}"\s*:', self.text)
        return 1 if match is None else self.text.count("\n", 0, match.start()) + 1

    def string(self, name: str) -> str | None:
        value = self.content.get(name)
        return value if isinstance(value, str) else None

    def count(self, name: str) -> int | None:
        """Return a whole number from a number or a string of digits."""
        return as_count(self.content.get(name))

    @property
    def accelerators(self) -> int | None:
        """Return the number of accelerators in the whole system."""
        nodes, per_node = self.count("number_of_nodes"), self.count("accelerators_per_node")
        return nodes * per_node if nodes and per_node else None


def as_count(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return int(value) if abs(value) < MOST_COUNT else None
    if isinstance(value, str) and re.fullmatch(r"\s*\d{1,9}\s*", value):
        return int(value)
    return None


def read_system(path: Path) -> SystemDescription:
    """Read a system description; no content of the file makes it raise."""
    try:
        text = read_regular(path, MOST_BYTES).decode("utf-8")
    except UnfitFile as error:
        return SystemDescription(path, {}, str(error))
    except OSError as error:
        return SystemDescription(path, {}, error.strerror or str(error))
    except UnicodeDecodeError as error:
        return SystemDescription(path, {}, f"not UTF-8 ({error.reason} at byte {error.start})")
    repeated: list[str] = []
    constants: list[str] = []

    def constant(name: str) -> float:
        constants.append(name)
        return float(name)

    def take(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        counts = Counter(name for name, _ in pairs)
        repeated.extend(sorted(name for name, times in counts.items() if times > 1))
        return dict(pairs)

    try:
        content = json.loads(text, object_pairs_hook=take, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        return SystemDescription(path, {}, f"not JSON ({error})", line, text=text)
    if not isinstance(content, dict):
        return SystemDescription(path, {}, f"a JSON {type(content).__name__}, not an object", text=text)
    return SystemDescription(path, content, repeated=tuple(repeated), constants=tuple(constants), text=text)
