"""The pages of the site that ``mkdocs build`` makes: a hook of mkdocs.yml.

docs/index.md alone holds the order of the pages. The papers beside the code's folders become pages too, and links to
them are followed: README.md is overview.md there.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
PAPERS = {
    "README.md": "overview.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
"""Files of the repository's folder, and their names among the pages."""


def chapters(index: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each chapter of docs/index.md: its heading, and the files that its links name, each once."""
    pages: set[str] = set()
    for heading, text in re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", index, flags=re.MULTILINE):
        files = [link for link in dict.fromkeys(re.findall(r"\]\(([^)#]+\.md)", text)) if link not in pages]
        pages.update(files)
        yield heading, files


def as_page(text: str, folder: str = "") -> str:
    """Return a paper or manual whose links lead to the pages of the site; folder is the paper's, relative to docs/."""
    if folder == "..":
        text = re.sub(r"\]\(docs/", "](", text)
    for name, page in PAPERS.items():
        above = "" if folder == ".." else r"\.\./"
        text = re.sub(rf"\]\(((?:\.\./)*?){above}{name}", rf"](\g<1>{page}", text)
    return text


def on_config(config: Any) -> Any:
    index = (REPOSITORY / "docs" / "index.md").read_text()
    pages = [{heading: [as_page(f"]({link}")[2:] for link in files]} for heading, files in chapters(index)]
    config.nav = [{"Contents": "index.md"}, *pages]
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File  # here, for the chapters are read without MkDocs, too

    for name, page in PAPERS.items():
        files.append(File.generated(config, page, content=as_page((REPOSITORY / name).read_text(), "..")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return as_page(markdown) if page.file.src_uri not in PAPERS.values() else markdown
