"""Findings once per system, without consequences, with their lines."""

from collections.abc import Iterator
from pathlib import Path

from benchmark.review.findings import Deviation, Finding, Rule
from benchmark.review.merged_findings import MOST_QUOTED, merged, quoted, without_consequences


def finding(rule: str, path: str, line: int | None, found: str = "found", due: str = "due") -> Finding:
    return Finding(rule, "error", "docs", path, line, found, due, "mend")


def test_what_differs_in_numbers_and_places_only_stands_once() -> None:
    same = [
        finding("a.b", "x/result_0.txt", 3, "3 steps, opt_beta_1 0.8"),
        finding("a.b", "x/result_1.txt", 4, "-1,204.5 steps, opt_beta_1 1e-05"),
        finding("a.b", "x/result_1.txt", 4, "5 steps, opt_beta_1 7"),
    ]
    others = [
        finding("a.b", "x/result_2.txt", 3, "3 steps, opt_beta_2 0.8"),
        finding("a.c", "x/result_2.txt", 3, "3 steps, opt_beta_1 0.8"),
        finding("a.b", "x/result_2.txt", 3, "3 steps, opt_beta_1 0.8", "else"),
        finding("a.b", "x/result_2.txt", 3, "as result_0.txt"),
        finding("a.b", "x/result_2.txt", 3, "as result_1.txt"),
    ]
    found = merged([*same, *others])
    assert [one.also for one in found] == [("x/result_1.txt:4",), (), (), (), (), ()]
    assert found[0].found == "3 steps, opt_beta_1 0.8"


def test_what_follows_from_another_finding_in_the_file_is_left_out() -> None:
    def nothing(_: object) -> Iterator[Deviation]:
        yield from ()

    rules = [Rule("file.two_runs", "error", "docs", nothing, explains=("key.", "clock."))]
    found = [
        finding("key.once", "a", 1),
        finding("file.two_runs", "a", 9),
        finding("clock.order", "a", 2),
        finding("key.once", "b", 1),
        finding("record.readable", "a", 3),
    ]
    kept = [(one.rule, one.path) for one in without_consequences(found, rules)]
    assert kept == [("file.two_runs", "a"), ("key.once", "b"), ("record.readable", "a")]
    assert without_consequences(found, []) == found


def test_lines_are_quoted_printable_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\r\n\x1b[31mtwo\x07\xe2\x80\xae\n" + b"x" * 10_000)
    here = str(path)
    found = quoted([finding("a.b", here, line) for line in (1, 2, 3, 4, None)] + [finding("a.b", "nowhere", 1)])
    assert [one.text for one in found[:2]] == ["one", "?[31mtwo?â?®"]
    assert found[2].text == "x" * (MOST_QUOTED - 1) + "…"
    assert [one.text for one in found[3:]] == ["", "", ""]
