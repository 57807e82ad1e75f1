"""The leaderboard, the convergence table, descriptions and links."""

from pathlib import Path

import pytest

from benchmark.report.comparing.system_rows import convergence_rows, day_of, description_rows, link, system_rows
from tests.benchmark.report.made_pages import judged
from tests.benchmark.report.runs import write_run
from tests.benchmark.review.fixture import SYSTEM, records, write_package


def test_leaderboard_has_the_best_score_first_and_none_last(tmp_path: Path) -> None:
    slow = write_package(tmp_path, lambda seed: records(seed, evaluations=26)).rename(tmp_path / "SLOW")
    none = write_package(tmp_path).rename(tmp_path / "NONE")
    next(none.rglob("result_2.txt")).unlink()
    fast = write_package(tmp_path).rename(tmp_path / "FAST")
    systems = judged([slow, none, fast]).systems
    rows = system_rows(systems, ["slow", "none", "fast"], 6, tmp_path)
    assert [(row.name, row.place, row.colour) for row in rows] == [("fast", 2, 2), ("slow", 0, 0), ("none", 1, 1)]
    assert rows[2].score == "\N{EN DASH}"
    assert rows[2].how == "a score takes 3 runs, there are 2"
    assert rows[2].verdict == "rejected"
    assert rows[0].devices == "512 x NVIDIA H100-SXM5-80GB"
    assert rows[0].runs[0].href == f"./FAST/results/{SYSTEM}/gpt3/result_0.txt"
    assert {row.colour for row in system_rows(systems, ["a", "b", "c"], 2, None)} == {None}


def test_convergence_is_told_of_what_is_tested(tmp_path: Path) -> None:
    package = write_package(tmp_path, lambda seed: records(seed, evaluations=23))
    systems = [*judged([package]).systems, *judged([write_run(tmp_path / "run")]).systems]
    (row,) = convergence_rows(systems, ["package", "run"])
    assert (row.name, row.batch, row.standing, row.factor, row.kind) == (
        "package",
        "2,048",
        "passes, scaled",
        "1.0174",
        "good",
    )
    assert (row.tokens, row.median, row.least) == ("1,157.6M 1,157.6M 1,157.6M", "1,157.6M", "1,119.6M")


def test_descriptions_leave_out_what_all_leave_empty(tmp_path: Path) -> None:
    rows = dict(description_rows(judged([write_package(tmp_path)]).systems))
    assert rows["number of nodes"] == ["64"]
    assert rows["other software stack"] == ["cuda 12.6"]
    assert "cooling" not in rows
    assert "submitter" not in rows


@pytest.mark.parametrize(
    ("name", "href"),
    [
        ("a b.txt", "./a%20b.txt"),
        ("javascript:alert(1)", "./javascript%3Aalert%281%29"),
        ('"><img src=x>', "./%22%3E%3Cimg%20src%3Dx%3E"),
        ("\udcff", "./%FF"),
    ],
)
def test_links_are_relative_and_encoded(name: str, href: str, tmp_path: Path) -> None:
    assert link(tmp_path / name, tmp_path) == href
    assert link(tmp_path / name, None) == ""


def test_days() -> None:
    assert day_of(1_700_000_000_000) == "2023-11-14"
    assert day_of(None) == day_of(1e300) == "\N{EN DASH}"
