"""``python -m benchmark review``: review, print, write."""

import json
from collections.abc import Sequence
from pathlib import Path

from benchmark.review.review_json import review_as_json
from benchmark.review.review_screen import console, print_review
from benchmark.review.side_by_side import compared, comparison, side_of
from benchmark.review.verdict import Review, review
from stage.errors import InputError
from stage.publish import write_text


def run(paths: Sequence[Path], ruleset: str | None, output: Path | None, compare: tuple[Path, Path] | None) -> int:
    """Exit status 0 if everything passed, 1 if not. Raises InputError for input that cannot be reviewed."""
    if not paths and compare is None:
        raise InputError("nothing to review; give result files, a run folder or a package (see --help)")
    found = review(paths, ruleset) if paths else Review((), 0.0)
    sides = []
    for path in compare or ():
        one = review([path], ruleset)
        if len(one.subjects) != 1:
            raise InputError(f"{path}: {len(one.subjects)} results; --compare takes the folder of one")
        sides.append(side_of(one.subjects[0], path))
        found = Review((*found.subjects, *one.subjects), found.seconds + one.seconds)
    print_review(found, console(), None if compare is None else comparison(sides[0], sides[1]))
    if output is not None:
        content = review_as_json(found)
        if compare is not None:
            names = ("name", "a", "b", "ratio")
            content["comparison"] = [dict(zip(names, row, strict=True)) for row in compared(sides[0], sides[1])]
        write_text(output, json.dumps(content, indent=1) + "\n")
    return 0 if found.passed else 1
