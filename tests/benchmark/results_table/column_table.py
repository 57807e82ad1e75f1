"""Write the table of columns in docs/results.md anew: python -m tests.benchmark.results_table.column_table"""

import re

from benchmark.results_table.columns import COLUMNS
from tests.support import REPOSITORY

PAGE = REPOSITORY / "docs" / "results.md"
TABLE = re.compile(r"(?m)(^\| column \| kind \|.*\n\|[-| ]+\n)(?:\|.*\n)*")

if __name__ == "__main__":
    lines = "".join(f"| `{one.name}` | {one.kind} | {one.meaning} |\n" for one in COLUMNS)
    PAGE.write_text(TABLE.sub(lambda found: found[1] + lines, PAGE.read_text()))
