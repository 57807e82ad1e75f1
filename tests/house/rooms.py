"""The house read from its imports and definitions: rooms, floors, arrows, names.

``python -m tests.house.rooms --draw`` draws its pictures in docs/architecture.md anew.

A *room* is a file or folder that lies directly in a package. An *arrow* is drawn where some module of one room imports
some module of another. A room stands one *floor* above the highest that it imports.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import grimp

from tests.house.house_picture import svg_lines

PACKAGES = ("benchmark", "checkpoint_convert", "checksums", "data_prep", "model", "foundation")
ENTRANCES = ("__init__.py", "__main__.py")
"""Files that Python itself names."""
ARCHITECTURE, PICTURES = Path("docs/architecture.md"), Path("docs/pictures")
DRAWN = (None, "benchmark", "checkpoint_convert", "data_prep")
"""The packages that have a picture, and None for the picture of all packages."""
BEGIN, END = "<!-- drawn: {} -->\n", "<!-- end -->\n"

Arrows = Mapping[tuple[str, str], int]
"""From, to: how many imports run that way."""


@dataclass(frozen=True)
class House:
    """A checkout."""

    root: Path

    @cached_property
    def files(self) -> dict[str, Path]:
        """By module name: all code, tests left out."""
        found = {}
        for package in PACKAGES:
            for path in sorted((self.root / package).rglob("*.py")):
                parts = path.relative_to(self.root).with_suffix("").parts
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        return found

    @cached_property
    def graph(self) -> "grimp.ImportGraph":
        sys.path.insert(0, str(self.root))
        try:
            return grimp.build_graph(*PACKAGES, cache_dir=None)
        finally:
            sys.path.pop(0)

    def arrows(self, package: str | None = None) -> Arrows:
        """Between the rooms of a package, or between the packages."""
        depth = 1 if package is None else 2
        found: dict[tuple[str, str], int] = defaultdict(int)
        for importer in self.graph.modules:
            for imported in self.graph.find_modules_directly_imported_by(importer):
                ends = tuple(".".join(module.split(".")[:depth]) for module in (importer, imported))
                inside = package is None or all(end.startswith(f"{package}.") for end in ends)
                if inside and ends[0] != ends[1]:
                    found[ends[0], ends[1]] += 1
        return dict(sorted(found.items()))

    def rooms(self, package: str) -> dict[str, list[Path]]:
        """The files of each room of a package."""
        found: dict[str, list[Path]] = defaultdict(list)
        for module, path in self.files.items():
            if module.startswith(f"{package}."):
                found[".".join(module.split(".")[:2])].append(path)
        return dict(sorted(found.items()))

    def repeated(self) -> dict[str, list[str]]:
        """Names of modules, public classes and aliases of types that occur more than once, and where."""
        paths: dict[str, list[str]] = defaultdict(list)
        for path in self.files.values():
            classes = [f"class {name}" for name in class_names(ast.parse(path.read_text())) if not name.startswith("_")]
            for name in (f"module {path.stem}", *classes) if path.name not in ENTRANCES else classes:
                paths[name].append(path.relative_to(self.root).as_posix())
        return {name: files for name, files in sorted(paths.items()) if len(files) > 1}


def class_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names of a module's classes, of its aliases of types, and of classes imported under another name."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom):
            yield from (name.asname for name in node.names if name.asname and name.asname != name.asname.upper())
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp):
            targets = [target.id for target in node.targets if isinstance(target, ast.Name)]
            yield from (name for name in targets if re.fullmatch("[A-Z][a-z]+([A-Z][a-z0-9]*)*", name))


def floors(rooms: Sequence[str], arrows: Arrows) -> dict[str, int]:
    """The floor of each room, 1 for the ground. Raises ValueError where rooms import each other in a circle."""
    below = {room: [to for (start, to) in arrows if start == room] for room in rooms}
    found: dict[str, int] = {}
    while len(found) < len(below):
        ready = [room for room in below if room not in found and all(other in found for other in below[room])]
        if not ready:
            raise ValueError(f"a circle among {', '.join(room for room in below if room not in found)}")
        found.update({room: 1 + max((found[other] for other in below[room]), default=0) for room in ready})
    return found


def rooms_by_floor(house: House, package: str | None) -> list[list[str]]:
    """Return the rooms of a package, or the packages, highest floor first; an entrance is no room."""
    rooms = [room for room in (house.rooms(package) if package else PACKAGES) if "__main__" not in room]
    stands = floors(rooms, {arrow: 1 for arrow in house.arrows(package) if set(arrow) <= set(rooms)})
    return [[room for room in rooms if stands[room] == level] for level in sorted(set(stands.values()), reverse=True)]


def picture(house: House, package: str | None) -> str:
    """Return the picture of the rooms of a package, or of the packages."""
    rows = rooms_by_floor(house, package)
    rooms = {room for row in rows for room in row}
    arrows = {arrow: imports for arrow, imports in house.arrows(package).items() if set(arrow) <= rooms}
    return "\n".join(svg_lines(f"The rooms of {package or 'the house'}", rows, arrows)) + "\n"


def image(house: House, package: str | None) -> str:
    """Return the link to a picture, with the rooms of each floor as its text."""
    rows = rooms_by_floor(house, package)
    text = "; ".join(", ".join(room.split(".")[-1] for room in row) for row in rows)
    name = package or "house"
    return f"![Floors of {package or 'the house'}, from above: {text}]({PICTURES.name}/{name}.svg)\n"


def pictures(house: House) -> dict[Path, str]:
    """Return the text of each picture by its file."""
    return {PICTURES / f"{package or 'house'}.svg": picture(house, package) for package in DRAWN}


def drawn(house: House, page: str) -> str:
    """Return the page with everything between its marks drawn anew. Raises ValueError for a mark that is missing."""
    for package in DRAWN:
        begin = BEGIN.format(package or "house")
        before, found, rest = page.partition(begin)
        _, ended, after = rest.partition(END)
        if not (found and ended):
            raise ValueError(f"{ARCHITECTURE} lacks the mark {begin.strip()}")
        page = f"{before}{begin}{image(house, package)}{END}{after}"
    return page


if __name__ == "__main__":
    house = House(Path(__file__).resolve().parents[2])
    page = house.root / ARCHITECTURE
    page.write_text(drawn(house, page.read_text()))
    for path, text in pictures(house).items():
        (house.root / path).parent.mkdir(exist_ok=True)
        (house.root / path).write_text(text)
