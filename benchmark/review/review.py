"""``review``: run the official checks on logs and say what really ran."""

from collections.abc import Sequence
from pathlib import Path

from benchmark.review.compliance import RULESETS, Verdict, check_compliance
from stage.errors import InputError


def review(paths: Sequence[Path], ruleset: str) -> list[Verdict]:
    """One verdict per result file; a folder stands for the ``result_*.txt`` in it.

    Raises InputError for a path that is neither, and for a submission package, which this version cannot review.
    """
    if ruleset not in RULESETS:
        raise InputError(f"--ruleset {ruleset}: gpt3 is in {', '.join(RULESETS)} only")
    results: list[Path] = []
    for path in paths:
        if (path / "results").is_dir():
            raise InputError(f"{path}: a submission package; only result files and folders of them can be reviewed yet")
        found = sorted(path.glob("result_*.txt")) if path.is_dir() else [path]
        if not found or not found[0].is_file():
            raise InputError(f"{path}: no result_*.txt there")
        results += found
    return [check_compliance(path, ruleset) for path in results]
