"""Two results side by side."""

from pathlib import Path

import pytest

from benchmark.review.side_by_side import compared, comparison, side_of
from stage.errors import InputError
from tests.benchmark.review.fixture import SYSTEM, records, write_package, write_run
from tests.benchmark.review.reviews import review_of


def test_figures_and_their_ratio(tmp_path: Path) -> None:
    a = write_package(tmp_path / "a") / "results" / SYSTEM / "gpt3"
    b = write_package(tmp_path / "b", lambda seed: records(seed, batch_size=1536, evaluations=25))
    b = b / "results" / SYSTEM / "gpt3"
    left, right = (side_of(review_of([path]).subjects[0], path) for path in (a, b))
    rows = {title: cells for title, *cells in compared(left, right)}
    assert rows["evaluations"] == ["24", "25", "1.042"]
    assert rows["batch size"] == ["2,048", "1,536", "0.750"]
    assert rows["accelerators"] == ["512", "512", "1.000"]
    assert rows["minutes of each run"] == ["52.00 52.00 52.00", "54.17 54.17 54.17", ""]
    assert rows["score, minutes"] == ["52.00", "54.17", "1.042"]
    assert rows["convergence"] == ["passes", "passes", ""]
    assert "step, s" not in rows  # neither log has it
    table = comparison(left, right)
    assert [str(column.header) for column in table.columns] == ["", f"A: {SYSTEM}", f"B: {SYSTEM}", "B / A"]
    assert table.row_count == len(rows)


def test_several_results_have_no_side(tmp_path: Path) -> None:
    review = review_of([write_run(tmp_path, records(1))])
    (subject,) = review.subjects
    several = type(subject)(**{**vars(subject), "sets": subject.sets * 2})
    with pytest.raises(InputError, match=r"/x: 2 results \(.*\); give the folder of one: results/SYSTEM/gpt3"):
        side_of(several, Path("/x"))
