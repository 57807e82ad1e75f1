"""Rounds, and folders of rounds, are found; a broken package hides no other."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmark.results_table import reviewed_places
from benchmark.results_table.reviewed_places import places_below, require_a_log, review_places
from benchmark.review.verdict import Review
from stage.errors import InputError
from tests.benchmark.report.runs import write_run
from tests.benchmark.results_table.places import own_review, without_official_tools, write_round


def _no_results(package: Path) -> None:
    for file in package.rglob("result_*.txt"):
        file.unlink()


def _a_fifo(package: Path) -> None:
    file = next(package.rglob("result_0.txt"))
    file.unlink()
    os.mkfifo(file)


def _loop(package: Path) -> None:
    (package / "results" / "loop").symlink_to(package / "results")


def _noise(package: Path) -> None:
    for file in package.rglob("*.*"):
        if file.is_file():
            file.write_bytes(os.urandom(4096))


@pytest.mark.parametrize("spoil", [_no_results, _a_fifo, _loop, _noise], ids=lambda one: one.__name__)
def test_round_survives_a_broken_package(
    spoil: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_official_tools(monkeypatch)
    found = review_places([write_round(tmp_path / "training_results_v4.1", ["BAD", "GOOD"], spoil)])
    assert [place.path.name for place in found] == ["BAD", "GOOD"]
    (good,) = found[1].systems
    assert good.score.minutes is not None
    assert good.round == "4.1"
    assert good.package == "GOOD"


def test_whatever_fails_in_a_package_is_its_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_round(tmp_path / "v4.1", ["BAD", "GOOD"])

    def fails(paths: list[Path], ruleset: str | None) -> Review:
        if paths[0].name == "BAD":
            raise RecursionError("too deep\nwithin")
        return own_review(paths, ruleset)

    monkeypatch.setattr(reviewed_places, "review", fails)
    bad, good = review_places([folder])
    assert bad.problem == "the review failed: RecursionError: too deep?within"
    assert list(bad.systems) == []
    assert good.problem is None


def test_folders_of_rounds_and_single_packages_are_found_once(tmp_path: Path) -> None:
    first = write_round(tmp_path / "training_results_v3.1", ["A"])
    second = write_round(tmp_path / "training_results_v4.1", ["B", "C"])
    places = [first / "A", second / "B", second / "C"]
    assert places_below([tmp_path]) == (places, [])
    assert places_below([second, tmp_path]) == ([*places[1:], places[0]], [])
    assert places_below([second / "B"]) == ([second / "B"], [])
    system = next((second / "B" / "results").iterdir())
    assert places_below([first, system]) == ([first / "A"], [system])


def test_loose_runs_of_one_system_are_reviewed_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_official_tools(monkeypatch)
    runs = [write_run(tmp_path / f"run_{seed}", seed=seed) for seed in range(3)]
    (place,) = review_places(runs)
    (system,) = place.systems
    assert [run.summary.seeds[0] for run in system.runs] == [0, 1, 2]


def test_path_given_without_results_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_official_tools(monkeypatch)
    with pytest.raises(InputError, match="no result_"):
        review_places([tmp_path])
    with pytest.raises(InputError, match="no results given"):
        review_places([])


def test_files_of_which_none_is_a_log(tmp_path: Path) -> None:
    other, log = tmp_path / "a", write_run(tmp_path)
    other.write_text("{}")
    with pytest.raises(InputError, match="no MLLOG record in it; name result files"):
        require_a_log([other])
    require_a_log([other, log])
    require_a_log([tmp_path])
    require_a_log([])
