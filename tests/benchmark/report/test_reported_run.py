"""Names, systems and colours of the runs of a page."""

from pathlib import Path

import pytest

from benchmark.report.reported_run import distinct_names, system_names
from stage.errors import InputError
from tests.benchmark.report.made_pages import judged, made_runs
from tests.benchmark.report.runs import write_run
from tests.benchmark.review.fixture import SYSTEM, write_package


def test_names_are_as_short_as_tells_them_apart() -> None:
    paths = [Path(f"/x/{system}/gpt3/result_0.txt") for system in ("a", "b")]
    assert distinct_names(paths) == ["a", "b"]
    assert distinct_names([Path(f"/x/a/gpt3/result_{n}.txt") for n in range(2)]) == ["result_0", "result_1"]
    assert distinct_names([*paths, Path("/x/a/gpt3/result_1.txt")]) == ["a/result_0", "b/result_0", "a/result_1"]
    assert distinct_names(paths[:1] * 2) == ["0: result_0.txt", "1: result_0.txt"]
    assert distinct_names([]) == []


def test_runs_of_one_system_have_a_colour_each_and_systems_one_for_their_runs(tmp_path: Path) -> None:
    runs = made_runs([write_run(tmp_path / str(number), seed=number) for number in range(3)])
    assert [(run.system, run.group) for run in runs] == [(0, 0), (0, 1), (0, 2)]
    packages = [write_package(tmp_path).rename(tmp_path / name) for name in ("A", "B")]
    assert [(run.system, run.group) for run in made_runs(packages)] == [(0, 0)] * 3 + [(1, 1)] * 3
    assert system_names(judged(packages)) == [f"{SYSTEM}, A", f"{SYSTEM}, B"]


def test_configuration_that_cannot_be_read_is_the_callers_to_mend_but_ends_no_strangers_package(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "config.json").write_text("{")
    with pytest.raises(InputError, match="not a run's configuration"):
        made_runs([run])
    package = write_package(tmp_path)
    (package / "results" / SYSTEM / "gpt3" / "config.json").write_text("{")
    assert len(made_runs([package])) == 3
