"""Nothing in a file ends a review, takes long, or reaches the terminal as it is."""

import io
import json
import os
import random
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmark.judging.results.run_summary import RunSummary
from benchmark.judging.results.score import score
from benchmark.judging.results.subjects import ResultSet
from benchmark.judging.review.findings import STOPPED, Deviation, Finding, Rule, apply
from benchmark.judging.review.review_json import review_as_json
from benchmark.judging.review.review_screen import print_review
from benchmark.judging.review.rules.copy_rules import Trace, likeness
from benchmark.judging.review.rules.rule_table import LOG_RULES, SET_RULES
from benchmark.judging.review.verdict import Review, SubjectReview, own_findings, review
from benchmark.run_record.events.mllog import parse_log
from tests.benchmark.judging.review.fixture import ORG, as_text, records, summary_of, system_description, write_package
from tests.benchmark.judging.review.reviews import verdict
from tests.benchmark.judging.review.submission_changes import DESCRIPTION, LOG, RESULTS

MOST_SHOWN = 3000
"""Characters of a finding's texts together."""
MOST_CPU_S, MOST_BYTES_MORE = 10.0, 1 << 30
HONEST = [summary_of(records(number), Path(f"result_{number}.txt")) for number in (5, 6)]
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 7, 2047.5, 1e-310, 1e308, 10**300, -(10**400), float("nan"), float("-inf"), "", " ", "gpt3",
    "aborted", "2048", "x" * 2000, "\x1b[31mred\x07", "[bold]markup[/bold]", "\u202etxt.exe", "\ud800", "a\nb\r\nc",
    "é\u0000", [], {}, [1, "2", None], {"a": {"b": []}}, [[]] * 50,
)  # fmt: skip
BYTES = (b"\xef\xbb\xbf", b"\x00" * 9, b"\r", b"\n", b":::MLLOG ", b":::MLLOG {", b"\xff\xfe", b"1" * 400)


def review_log(content: bytes) -> Review:
    """Return what our rules and score say of a set of runs of which one has this log; no official tool, no file."""
    runs = (RunSummary(parse_log(Path("result_0.txt"), content)), *HONEST)
    one = ResultSet("x", "4.1.0", [run.log.path for run in runs], None)
    one.__dict__["runs"] = runs
    subject = SubjectReview("runs", "x", "4.1.0", (verdict(),), own_findings(one), (one,), (score(one),))
    return Review((subject,), 1.0)


def assert_sound(found: Review) -> None:
    """Every rule came to its end, and all that is shown is fit to be shown."""
    for subject in found.subjects:
        assert_findings_are_sound(subject.findings)
    out = io.StringIO()
    print_review(found, Console(file=out, width=120, highlight=False, force_terminal=False))
    assert out.getvalue().replace("\n", "").isprintable()
    json.loads(json.dumps(review_as_json(found), allow_nan=False))


def assert_findings_are_sound(findings: Sequence[Finding]) -> None:
    for one in findings:
        assert one.rule != STOPPED, one
        assert one.observed and (one.mend or one.question or one.severity == "note"), one
        assert sum(map(len, (one.observed, one.expected, one.mend, one.text))) < MOST_SHOWN, one


def spoilt(text: bytes, draw: random.Random) -> bytes:
    content = bytearray(text)
    for _ in range(draw.randrange(3)):
        start = draw.randrange(len(content))
        content[start : start + draw.randrange(25)] = draw.choice(BYTES)
    return bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25))
def test_no_log_stops_a_rule_or_shows_control_characters(seed: int) -> None:
    draw = random.Random(seed)
    run = records(1, evaluations=6)
    for _ in range(draw.randrange(1, 6)):
        record = draw.choice(run)
        places: list[dict[str, Any]] = [record, *[one for one in record.values() if isinstance(one, dict)]]
        place = draw.choice(places)
        place[draw.choice([*place, "key", "epoch_num", "status"])] = draw.choice(ODD)
        run.insert(draw.randrange(len(run)), run.pop(draw.randrange(len(run))))
        run += [dict(one) for one in run[: draw.choice((0, 0, 40))]]
    assert_sound(review_log(spoilt("".join(f":::MLLOG {json.dumps(one)}\n" for one in run).encode(), draw)))


@pytest.mark.parametrize("seed", range(12))
def test_no_description_does_either(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    content = system_description() | {draw.choice([*system_description()]): draw.choice(ODD) for _ in range(4)}
    path = tmp_path / "system.json"
    path.write_bytes(spoilt(json.dumps(content).encode(), draw))
    one = ResultSet("x", "4.1.0", [run.log.path for run in HONEST], None, path)
    one.__dict__["runs"] = tuple(HONEST)
    score(one)
    assert_findings_are_sound(list(apply(SET_RULES, one, path)))


def test_a_rule_that_stops_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def stops(_: object) -> Iterator[Deviation]:
        yield from ()
        raise OverflowError("cannot convert float infinity to integer")

    rule: Rule[Any] = Rule("clock.x", "note", "7.3", stops)
    monkeypatch.setattr("benchmark.judging.review.verdict.LOG_RULES", (*LOG_RULES, rule))
    with pytest.raises(AssertionError):
        assert_sound(review_log(as_text(records(1)).encode()))


def _many(key: str, value: str) -> bytes:
    metadata = '{"file": "x", "lineno": 1, "step": 5, "epoch_num": 5}'
    head = f'"namespace": "", "time_ms": 1728500300000, "event_type": "POINT_IN_TIME", "metadata": {metadata}'
    return as_text(records(1)).encode() + f':::MLLOG {{{head}, "key": "{key}", "value": {value}}}\n'.encode() * 25_000


HUGE: dict[str, Callable[[], bytes]] = {
    "25,000 restarts": lambda: _many("restart", "1"),
    "25,000 evaluations": lambda: _many("eval_accuracy", "2.7"),
    "50 MB of newlines": lambda: b"\n" * 50_000_000 + as_text(records(1)).encode(),
    "a text of 900 kB of control characters": lambda: as_text(records(1)).encode() + b":::MLLOG " + b"\x1b" * 900_000,
    "arrays in arrays": lambda: as_text(records(1)).encode() + b":::MLLOG " + b"[" * 900_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HUGE)
def test_huge_logs_take_little_time_and_memory(name: str) -> None:
    """Processor time, not wall time: other tests run beside it."""
    content = HUGE[name]()
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    assert_sound(review_log(content))
    assert time.process_time() - started < MOST_CPU_S
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < MOST_BYTES_MORE


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


PLACES: tuple[tuple[str, str, Callable[[Path], object]], ...] = (
    ("log is a folder", LOG, lambda path: path.mkdir()),
    ("log is a pipe", LOG, os.mkfifo),
    ("log leads to a device", LOG, lambda path: path.symlink_to("/dev/zero")),
    ("log leads to itself", LOG, lambda path: path.symlink_to(path.name)),
    ("log of a terabyte", LOG, _sparse),
    ("description is a pipe", DESCRIPTION, os.mkfifo),
    ("description leads to a device", DESCRIPTION, lambda path: path.symlink_to("/dev/zero")),
    ("description nested in itself", DESCRIPTION, lambda path: path.write_bytes(b'{"a":' * 90_000)),
    ("scaling.json is a pipe", f"{RESULTS}/scaling.json", os.mkfifo),
    ("a link to the round in itself", f"{RESULTS}/up", lambda path: path.symlink_to(path.parents[4])),
    ("fine", f"{RESULTS}/package_checker_params", lambda path: path.write_bytes(bytes(256))),
)
"""What lies where in a package that is rejected, but for the last."""


@pytest.mark.slow
def test_whatever_lies_in_a_package_the_next_ones_are_reviewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "benchmark.judging.review.verdict.run_checkers", lambda subjects, tools, done: [[verdict()] for _ in subjects]
    )
    for name, place, put in PLACES:
        package = write_package(tmp_path / name)
        (package / place).unlink(missing_ok=True)
        put(package / place)
    found = review([tmp_path / name / ORG for name, *_ in PLACES], "4.1.0")
    assert_sound(found)
    assert [one.verdict for one in found.subjects] == ["rejected"] * (len(PLACES) - 1) + ["acceptable"]


def test_a_constant_curve_is_like_no_other() -> None:
    flat, falling = Trace((2.7,) * 20, (1.0,) * 19), Trace(tuple(2.6 - 0.01 * step for step in range(20)), (2.0,) * 19)
    assert (likeness(flat, falling), likeness(falling, flat)) == ("", "")
