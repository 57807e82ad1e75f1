"""``python -m benchmark review``: review, print, write."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmark.review.review_json import review_as_json
from benchmark.review.review_screen import print_review, review_console
from benchmark.review.side_by_side import Side, compared, comparison, side_of
from benchmark.review.verdict import USUAL, Review, ReviewOptions, review
from stage.errors import InputError
from stage.outputs.publish import write_text


def review_and_print(
    paths: Sequence[Path],
    ruleset: str | None = None,
    json_file: Path | None = None,
    compare: tuple[Path, Path] | None = None,
    page: Callable[[Review], str] | None = None,
    options: ReviewOptions = USUAL,
) -> int:
    """Review results and packages, and two results side by side; print it, write it to ``json_file``, and make a
    ``page`` of it, which tells in a line what it says.

    Returns the exit status, 0 if everything passed, 1 if not. Raises InputError for input that cannot be reviewed.
    """
    if not paths and compare is None:
        raise InputError("nothing to review; give result files, a run folder or a package (see --help)")
    found = review(paths, ruleset, options) if paths else Review((), 0.0)
    sides: tuple[Side, Side] | None = None
    if compare is not None:
        (left, first), (right, second) = (_one_result(path, ruleset, options) for path in compare)
        sides = left, right
        subjects = (*found.subjects, *first.subjects, *second.subjects)
        found = Review(subjects, found.seconds + first.seconds + second.seconds)
    print_review(found, review_console(), None if sides is None else comparison(*sides))
    if json_file is not None:
        content = review_as_json(found)
        if sides is not None:
            names = ("name", "a", "b", "ratio")
            content["comparison"] = [dict(zip(names, row, strict=True)) for row in compared(*sides)]
        write_text(json_file, json.dumps(content, indent=1) + "\n")
    if page is not None:
        print(page(found))
    return 0 if found.passed else 1


def _one_result(path: Path, ruleset: str | None, options: ReviewOptions) -> tuple[Side, Review]:
    one = review([path], ruleset, options)
    if len(one.subjects) != 1:
        raise InputError(f"{path}: {len(one.subjects)} results; --compare takes the folder of one")
    return side_of(one.subjects[0], path), one
