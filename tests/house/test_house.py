"""The house: one guess to any file, arrows that run one way, citations that open."""

import os
import re
from functools import cache
from pathlib import Path

import pytest

from tests.house.rooms import ARCHITECTURE, House, drawn, floors, pictures
from tests.support import REPOSITORY

HOUSE = House(REPOSITORY)
CITATION = re.compile(
    r"facts/(\w+)\.md[ \n]+((?:[0-9]+|[a-k])(?:\.[0-9]+)?(?:,\s+(?:[0-9]+|[a-k])(?:\.[0-9]+)?(?![\w-]))*)(?![\w-])"
)
"""A fact sheet and ids of its sections."""
WITHOUT_SHEET = re.compile(r"(?<![/\w])(?:facts|Facts) (?:section )?(?:[0-9a-k]\b|[a-k]\.[0-9])")
"""A citation as it used to be, which nobody can open."""
SECTION = re.compile(r"^(?:#+ |- \*\*)([0-9]+(?:\.[0-9]+)?|[a-k](?:\.[0-9]+)?)(?:\.? |\*\*)", re.MULTILINE)
TABLED = {Path("benchmark/judging/review/rules")}
"""Rules, which tests/benchmark/judging/review/test_submissions.py tries by its tables."""


def house_of(module: str) -> str:
    """Return the room of ``benchmark`` that a module lies in, or its package."""
    return ".".join(module.split(".")[: 2 if module.startswith("benchmark.") else 1])


@cache
def texts() -> list[tuple[Path, str]]:
    """Code, scripts and papers in which something may be cited."""
    kinds, found = (".py", ".sh", ".md", ".j2", ".yaml"), []
    for folder, folders, files in os.walk(REPOSITORY):
        folders[:] = [name for name in folders if name not in (".venv", ".git", "runs", "golden", "__pycache__")]
        found += [Path(folder, name) for name in files if name.endswith(kinds)]
    return [(path, path.read_text()) for path in found]


def test_every_citation_leads_to_a_section() -> None:
    sheets = {
        path.stem: set(SECTION.findall(path.read_text())) for path in (REPOSITORY / "docs" / "facts").glob("*.md")
    }
    assert sheets.keys() == {"reference", "mlperf_review", "peers", "torch_distributed", "llama31_8b", "fp8"}
    cited = 0
    for path, text in texts():
        for sheet, sections in CITATION.findall(text):
            for section in re.split(r",\s+", sections):
                assert section in sheets[sheet], f"{path}: {sheet}.md has no section {section}"
                cited += 1
    assert cited > 150


def test_nothing_is_cited_without_its_sheet() -> None:
    for path, text in texts():
        if path != Path(__file__) and path.parent.name != "facts":
            assert not WITHOUT_SHEET.findall(text), f"{path}: {WITHOUT_SHEET.findall(text)}"


def test_names_of_modules_and_public_classes_occur_once() -> None:
    assert HOUSE.repeated() == {}


def test_folders_hold_a_dozen_files_or_so() -> None:
    sizes: dict[Path, int] = {}
    for path in HOUSE.files.values():
        sizes[path.parent] = sizes.get(path.parent, 0) + 1
    assert {folder: size for folder, size in sizes.items() if size > 15} == {}


def test_arrows_run_one_way() -> None:
    for package in ("benchmark", "checkpoint_convert", "data_prep"):
        assert max(floors(list(HOUSE.rooms(package)), HOUSE.arrows(package)).values()) <= 7
    with pytest.raises(ValueError, match="a circle among a, b"):
        floors(["a", "b", "c"], {("a", "b"): 1, ("b", "a"): 1, ("a", "c"): 1})


def test_rooms_of_the_benchmark_and_packages_have_few_arrows_and_floors() -> None:
    """``python -m benchmark`` itself is no room: it imports the table of commands."""
    arrows = {
        (house_of(importer), house_of(imported)): 1
        for importer in HOUSE.graph.modules - {"benchmark.__main__"}
        for imported in HOUSE.graph.find_modules_directly_imported_by(importer)
        if house_of(importer) != house_of(imported)
    }
    assert len(arrows) <= 45
    assert max(floors(sorted({room for arrow in arrows for room in arrow}), arrows).values()) <= 6


def has_behaviour(path: Path) -> bool:
    return re.search(r"^ *(async )?def ", path.read_text(), flags=re.MULTILINE) is not None


def test_every_folder_with_behaviour_has_its_tests_at_its_place() -> None:
    """A mechanism is tested once, wherever it is used: so a folder has tests, not each of its files."""
    folders = {path.parent.relative_to(REPOSITORY) for path in HOUSE.files.values() if has_behaviour(path)}
    places = {path.parent.relative_to(REPOSITORY / "tests") for path in (REPOSITORY / "tests").rglob("test_*.py")}
    assert sorted(map(str, folders - places - TABLED)) == []


def test_pictures_of_the_house_are_current() -> None:
    page = (REPOSITORY / ARCHITECTURE).read_text()
    assert drawn(HOUSE, page) == page, "draw them anew: python -m tests.house.rooms --draw"
    for path, picture in pictures(HOUSE).items():
        assert (REPOSITORY / path).read_text() == picture, "draw them anew: python -m tests.house.rooms --draw"
