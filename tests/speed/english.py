"""Real English for timings, from what is installed on a machine: documentation, manual pages, dictionaries, docstrings.

python -m tests.speed.english OUTPUT [--megabytes 60]     # OUTPUT/c4-train.NNNNN-of-00032.json.gz, in C4's format

Every paragraph is used once, and the documents are mixed, so that the vocabulary keeps growing as it does on the web.
"""

import argparse
import ast
import gzip
import html
import json
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOTS = [Path("/usr/share/doc"), Path("/usr/share/man"), Path("/usr/share/dictd"), Path("/usr/share/wordnet")]
SHARDS = 32
SHORTEST_PARAGRAPH, LONGEST_PARAGRAPH = 60, 10_000  # longer ones are tables
DOCUMENT_BYTES = 2200  # C4's mean
TAGS = re.compile(r"(?s)<(script|style).*?</\1>|<[^>]*>")
ROFF = re.compile(r"(?m)^[.'].*$|\\f.|\\[&%|^]|\\\*?\(..")


def texts(roots: Iterable[Path]) -> Iterator[str]:
    """Plain text of every file below ``roots`` that holds prose."""
    for root in roots:
        for path in sorted(root.rglob("*")):
            if path.is_symlink() or not path.is_file() or path.stat().st_size > 1 << 26:
                continue
            name = path.name.removesuffix(".gz")
            data = path.read_bytes()
            if path.suffix in (".gz", ".dz"):
                data = gzip.decompress(data)
            text = data.decode("utf-8", "replace")
            if "�" in text:
                text = data.decode("latin-1")
            if name.endswith((".html", ".htm")):
                yield html.unescape(TAGS.sub("", text))
            elif re.search(r"\.\d\w*$", name) and root.name == "man":
                if path.parent.parent == root:  # folders between are translations
                    yield ROFF.sub("", text).replace("\\-", "-")
            elif name.endswith((".txt", ".rst", ".md", ".dz")) or name.startswith(("data.", "README", "NEWS")):
                yield text
            elif name.endswith(".py"):
                yield "\n\n".join(docstrings(text))


def docstrings(source: str) -> Iterator[str]:
    """Docstrings of a Python file."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def documents(roots: Iterable[Path]) -> Iterator[str]:
    """Paragraphs of prose, each once, joined to documents of uneven length."""
    draw = random.Random(0)
    seen: set[int] = set()
    waiting: list[str] = []
    size, wanted = 0, 0.0
    for text in texts(roots):
        for block in re.split(r"\n\s*\n", text):
            paragraph = " ".join(block.split())
            letters = sum(map(str.isalpha, paragraph))
            if not SHORTEST_PARAGRAPH <= len(paragraph) <= LONGEST_PARAGRAPH or letters < 0.7 * len(paragraph):
                continue
            if hash(paragraph) in seen:
                continue
            seen.add(hash(paragraph))
            waiting.append(paragraph)
            size += len(paragraph)
            if size > wanted:
                yield "\n".join(waiting)
                waiting, size, wanted = [], 0, draw.expovariate(1 / DOCUMENT_BYTES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--megabytes", type=float, default=60)
    parser.add_argument("--docstrings", type=Path, nargs="*", default=[Path("/usr/lib/python3")])
    chosen = parser.parse_args()
    found = list(documents([*ROOTS, *chosen.docstrings]))
    random.Random(0).shuffle(found)
    size, count = 0.0, 0
    while count < len(found) and size < chosen.megabytes * 1e6:
        size += len(found[count].encode())
        count += 1
    found = found[:count]
    words = {word for text in found for word in text.split()}
    chosen.output.mkdir(parents=True, exist_ok=True)
    for shard in range(SHARDS):
        lines = [
            json.dumps({"text": text, "timestamp": "2019-04-25T12:57:54Z", "url": f"https://example.org/{number}"})
            for number, text in enumerate(found[shard::SHARDS])
        ]
        path = chosen.output / f"c4-train.{shard:05d}-of-{SHARDS:05d}.json.gz"
        path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0))
    print(f"{chosen.output}: {size / 1e6:.1f} MB of text, {count:,} documents, {len(words):,} distinct words")


if __name__ == "__main__":
    main()
