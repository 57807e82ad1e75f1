"""The manuals as a site: docs/index.md names every page, MkDocs builds them without a warning or a network."""

import importlib.util
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.chromium import PROGRAM, headless
from tests.house.site_pages import PAPERS, as_page, chapters
from tests.support import REPOSITORY

DOCS = REPOSITORY / "docs"
LINKS = re.compile(r'<(?:a|link|img|script|iframe|source)\b[^>]*?\b(?:href|src)="([^"]*)"')
LOADS = re.compile(r'<(?:link\b[^>]*\brel="(?:stylesheet|icon|preload|preconnect)"|img|script|iframe|source)[^>]*>')


def test_the_index_names_every_manual_once() -> None:
    index = (DOCS / "index.md").read_text()
    links = [link for _, files in chapters(index) for link in files]
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} - {"index.md"}
    assert sorted(links) == sorted(pages | {f"../{name}" for name in PAPERS})
    assert len(re.findall(r"\.md\)", index)) == len(links)


@pytest.mark.parametrize(
    ("text", "folder", "page"),
    [
        ("[a](docs/slurm.md#time) [b](SECURITY.md)", "..", "[a](slurm.md#time) [b](security.md)"),
        ("[a](../README.md#x) [b](step.md)", "", "[a](overview.md#x) [b](step.md)"),
        ("[a](../../README.md)", "", "[a](../overview.md)"),
    ],
)
def test_links_to_papers_lead_to_pages(text: str, folder: str, page: str) -> None:
    assert as_page(text, folder) == page


@pytest.mark.parametrize(
    "path", [*sorted(DOCS.rglob("*.md")), *(REPOSITORY / name for name in PAPERS)], ids=lambda path: path.name
)
def test_lists_and_tables_begin_after_a_blank_line(path: Path) -> None:
    """GitHub shows them without it, Python's Markdown does not."""
    lines = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE).splitlines()
    for before, line in pairwise(lines):
        for start in (r"\|", r"- ", r"\d+\. "):
            if re.match(start, line):
                assert not before.strip() or re.match(rf"{start}|\s|#", before), f"{path.name}: {line}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed")
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.slow
def test_every_link_of_the_site_leads_somewhere_and_nothing_comes_from_the_network(site: Path) -> None:
    pages = {path: path.read_text() for path in site.rglob("*.html") if path.name != "404.html"}
    assert len(pages) > 30
    for path, text in pages.items():
        for tag in LOADS.findall(text):
            assert "//" not in tag, (path.name, tag)
        assert "fonts.g" not in text, path.name
        for link in LINKS.findall(text):
            target, _, anchor = unquote(link).partition("#")
            if re.match(r"https?:|mailto:", target):
                continue
            page = (path.parent / target).resolve() if target else path
            page = page / "index.html" if page.is_dir() else page
            assert page.exists(), (path.name, link)
            if anchor and page.suffix == ".html":
                assert re.search(rf'\bid="{re.escape(anchor)}"', pages.get(page, page.read_text())), (path.name, link)


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_fit_a_narrow_screen(site: Path, tmp_path: Path, dark: bool) -> None:
    with headless(tmp_path / "profile") as browser:
        for name in ("index", "overview", "architecture", "report", "slurm", "llama31_8b", "facts/mlperf_review"):
            browser.open(site / f"{name}.html", 420, dark=dark)
            assert browser.value("document.documentElement.scrollWidth") <= 420, name
            assert browser.value("[...document.images].every((image) => image.naturalWidth > 0)"), name
            assert browser.value("performance.getEntriesByType('resource').every((e) => !e.name.startsWith('http'))")
            shade = browser.value("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", shade)[:3])) < 250) == dark, (name, shade)
            assert browser.complaints == [], name
