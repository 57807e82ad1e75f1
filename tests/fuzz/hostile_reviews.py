"""Review logs and packages with hostile values at random places: ``python -m tests.fuzz.hostile_reviews --cases 30``.

A case is broken if an official tool opens a file outside its copies, starts a process or looks up a name, if a rule of
ours stops, if the package changes, or if something takes more than a minute of a processor. The tools' processes are
not closed here: the copies alone must hold.
"""

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmark.judging.review.findings import STOPPED
from benchmark.judging.review.verdict import review
from tests.benchmark.judging.review.fixture import ORG, SYSTEM, Log, as_text, records, write_package
from tests.benchmark.judging.review.official.watched_tools import watched

MOST_S = 60.0
CODE = "__import__('os').system('id')"
TEXTS = (
    "{lead}", "closed/{lead}", "{0.__class__.__mro__}", "%s%n%(x)s", CODE, f"'){CODE}('", "../../etc/passwd",
    "/dev/zero", "$(id)", "`id`", "closed", "open", "gpt3", "llama31_8b", "\0", "\r", "x" * 100_000, "{a,*}", "[a-z]*",
    "--csv=x", "",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    *TEXTS,
    None,
    True,
    0,
    -1,
    10**400,
    1e308,
    float("nan"),
    [],
    {},
    ["{lead}"],
    {"closed": CODE},
)
NAMES = (
    "[a]*",
    "{a,b}",
    "-x",
    "$(id)",
    "a b",
    ".a",
    "...",
    "result_7.txt",
    "scaling.json",
    "x.json",
    "node_0.txt",
    "é",
)


def processor_s() -> float:
    """Return the processor time of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


def spoilt_log(draw: random.Random, lead: str) -> str:
    """Return a log with hostile values in some records, and a few records twice."""
    log = Log(records(draw.randrange(1, 99)))
    for _ in range(draw.randrange(1, 5)):
        record = draw.choice(log.records)
        place = draw.choice([record, record, record["metadata"]])
        value = draw.choice(VALUES)
        place[draw.choice([*place, "status", "file"])] = (
            value.replace("{lead}", lead) if isinstance(value, str) else value
        )
        if draw.random() < 0.3:
            log.records.append({**record, "key": draw.choice(("submission_division", "submission_benchmark"))})
    return as_text(log.records)


def spoil_package(package: Path, draw: random.Random, lead: str) -> None:
    """Change logs, names, descriptions and other files of a package."""
    results, description = package / "results" / SYSTEM, package / "systems" / f"{SYSTEM}.json"
    for path in sorted((results / "gpt3").glob("result_*.txt")):
        if draw.random() < 0.5:
            path.write_bytes(spoilt_log(draw, lead).encode("utf-8", "replace"))
    fields = json.loads(description.read_text())
    for _ in range(draw.randrange(4)):
        fields[draw.choice([*fields])] = draw.choice(VALUES)
    description.write_text(json.dumps(fields))
    for folder in (results, results / "gpt3", results / "gpt3" / "power" / "result_0", package / "systems"):
        if draw.random() < 0.4:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / draw.choice(NAMES)).write_text(draw.choice(TEXTS).replace("{lead}", lead))
    if draw.random() < 0.3:
        name = draw.choice(NAMES)
        results.rename(results.with_name(name))
        description.rename(description.with_name(f"{name}.json"))


def faults(seed: int, folder: Path) -> Iterator[str]:
    """Review one case, and yield what is broken."""
    draw, canary = random.Random(seed), folder / "canary"
    lead = f"{'../' * 40}{folder.relative_to('/')}/x"
    for name in ("x_common.yaml", "x.yaml", "x"):
        (folder / name).write_text(json.dumps([{"BEGIN": {"CODE": f"open({str(canary)!r}, 'w'); {CODE}"}}]))
    package = write_package(folder)
    spoil_package(package, draw, lead)
    before = sorted((str(path), path.lstat().st_mtime_ns) for path in package.rglob("*"))
    started_s = processor_s()
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("benchmark.judging.review.verdict.usual_folder", lambda: None)
        with watched(monkeypatch, folder / "events", sandbox=False) as events:
            found = review([folder / ORG], "4.1.0")
    yield from (f"noticed: {event} {arguments}" for event, arguments in events)
    yield from (f"{one.observed}" for each in found.subjects for one in each.findings if one.rule == STOPPED)
    stopped = (words for each in found.subjects for one in each.checks for words in one.complaints)
    yield from (words for words in stopped if words.startswith(("this program stopped", "no answer within")))
    if canary.exists() or before != sorted((str(path), path.lstat().st_mtime_ns) for path in package.rglob("*")):
        yield "a file was touched"
    if (taken_s := processor_s() - started_s) > MOST_S:
        yield f"it took {taken_s:.0f} s of a processor"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    broken = 0
    for seed in range(options.seed, options.seed + options.cases):
        with tempfile.TemporaryDirectory() as folder:
            found = list(faults(seed, Path(folder)))
        broken += bool(found)
        for words in found:
            print(f"seed {seed}: {words}")
    print(f"{options.cases} cases, {broken} broken")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
