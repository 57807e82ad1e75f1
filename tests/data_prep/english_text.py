"""English for tokenizers: the project's own manuals."""

from tests.support import REPOSITORY

TEXT = "".join(path.read_text() for path in sorted((REPOSITORY / "docs").rglob("*.md")))[:26_000]
LINES = [line for line in TEXT.splitlines() if line.strip()]
WORDS = TEXT.split()
