"""``python -m benchmark review``: review, print, write."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmark.results.convergence import USUAL_REFERENCES, ReferenceChoice
from benchmark.review.review_json import review_as_json
from benchmark.review.review_screen import print_review, review_console
from benchmark.review.verdict import Review, review
from stage.errors import InputError
from stage.outputs.publish import write_text


def review_and_print(
    paths: Sequence[Path],
    ruleset: str | None = None,
    json_file: Path | None = None,
    page: Callable[[Review], str] | None = None,
    references: ReferenceChoice = USUAL_REFERENCES,
) -> int:
    """Review results and packages; print it, write it to ``json_file``, and make a ``page`` of it, which tells in a
    line what it says.

    Returns the exit status, 0 if everything passed, 1 if not. Raises InputError for input that cannot be reviewed.
    """
    if not paths:
        raise InputError("nothing to review; give result files, a run folder or a package (see --help)")
    found = review(paths, ruleset, references)
    print_review(found, review_console())
    if json_file is not None:
        write_text(json_file, json.dumps(review_as_json(found), indent=1) + "\n")
    if page is not None:
        print(page(found))
    return 0 if found.passed else 1
