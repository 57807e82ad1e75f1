"""Cheats, and what honest submitters do, against the review's own rules, or all of it with the official tools.

    python -m tests.speed.trials [--only WORDS] [--official]
    PUBLISHED_LOGS=rounds python -m tests.speed.trials [--published]

Each trial (tests/benchmark/review/trials) changes the made-up submission; with PUBLISHED_LOGS, a folder of
training_results_v3.0 … v4.1, also submissions made anew from published ones. Prints every trial that was judged
otherwise than is due, and how many. --published: which published runs are said to be made of others; none should be.
"""

import argparse
import copy
import os
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

from benchmark.results.subjects import SubmissionPackage
from benchmark.review.published.mixtures import made_of
from benchmark.review.rules.traces.mixture_rules import published_curves
from benchmark.review.verdict import own_findings, review
from tests.benchmark.review.trials.renewed import renewed
from tests.benchmark.review.trials.submission_on_trial import SubmissionOnTrial, made_up
from tests.benchmark.review.trials.told import CHEATS, HONEST, RULESET

ROUNDS = Path(os.environ.get("PUBLISHED_LOGS", "/nowhere"))
RENEWED = {
    "steps": "training_results_v4.1/NVIDIA/results/eos_n64_ngc24.09_nemo",
    "tpu": "training_results_v4.1/Google/results/cloud-tpu-trillium-2048-maxtext",
}
RANK = {"kept": 0, "asked": 1, "rejected": 2}
Told = tuple[str, set[str]]
"""The verdict, and what raised it."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--official", action="store_true")
    parser.add_argument("--published", action="store_true")
    options = parser.parse_args()
    return _published() if options.published else _trials(options.only, options.official)


def _trials(only: str, official: bool) -> int:
    bases = {"made": made_up()}
    bases |= {name: renewed(ROUNDS / path, 1) for name, path in RENEWED.items() if (ROUNDS / path).is_dir()}
    usual = {name: _judged(copy.deepcopy(one), official)[1] for name, one in bases.items()}
    count = wrong = 0
    for trial in (one for one in (*CHEATS, *HONEST) if only in one.name):
        for name in trial.bases or tuple(bases):
            if name not in bases:
                continue
            submission = copy.deepcopy(bases[name])
            trial.change(submission)
            verdict, why = _judged(submission, official, usual[name])
            right = verdict != "rejected" if trial.due == "kept" else RANK[verdict] >= RANK[trial.due]
            count, wrong = count + 1, wrong + (not right)
            if not right or only:
                print(
                    f"{'right' if right else 'WRONG'} {name}: {trial.name}: due {trial.due}, is {verdict}", *sorted(why)
                )
    print(
        f"{count} trials of {len(CHEATS)} cheats and {len(HONEST)} honest variants, {wrong} judged otherwise than due"
    )
    return 1 if wrong else 0


def _judged(submission: SubmissionOnTrial, official: bool, usual: Collection[str] = ()) -> Told:
    with tempfile.TemporaryDirectory() as folder:
        package = submission.write(Path(folder))
        failed: set[str] = set()
        if official:
            (subject,) = review([package], RULESET).subjects
            found, failed = subject.findings, {check.tool for check in subject.checks if not check.passed}
        else:
            found = own_findings(SubmissionPackage(package, RULESET))
    errors = failed | {one.rule for one in found if one.severity == "error"}
    asked = {one.rule for one in found if one.severity == "warning"} - set(usual)
    return ("rejected", errors) if errors else ("asked", asked) if asked else ("kept", set())


def _published() -> int:
    curves = published_curves()
    found = list(_mixtures())
    print(*found, f"{len(found)} of {len(curves)} published runs said to be made of others", sep="\n")
    return 1 if found else 0


def _mixtures() -> Iterator[str]:
    curves = published_curves()
    for place, one in enumerate(curves):
        found = made_of(one, (*curves[:place], *curves[place + 1 :]))
        if found is not None:
            yield f"{one.name}: {found.what}"


if __name__ == "__main__":
    sys.exit(main())
