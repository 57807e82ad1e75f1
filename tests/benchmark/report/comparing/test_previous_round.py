"""What changed since another round."""

from pathlib import Path

from benchmark.report.comparing.previous_round import changes
from tests.benchmark.report.made_pages import judged
from tests.benchmark.review.fixture import SYSTEM, records, write_package


def test_same_successor_new_and_gone(tmp_path: Path) -> None:
    before, after = tmp_path / "training_results_v4.0", tmp_path / "training_results_v4.1"
    before.mkdir()
    after.mkdir()
    for name in ("SAME", "NEXT", "GONE"):
        write_package(tmp_path, lambda seed: records(seed, evaluations=26)).rename(before / name)
    for name in ("SAME", "NEXT", "FRESH"):
        write_package(tmp_path).rename(after / name)
    for folder in ("results", "systems"):
        (path,) = (after / "NEXT" / folder).iterdir()
        path.rename(path.with_name(path.name.replace(SYSTEM, "another")))
    systems = judged([after]).systems
    rows = changes(systems, [one.package or "" for one in systems], judged([before]).systems)
    assert [(row.name, row.kind) for row in rows] == [
        ("FRESH", "new"), ("NEXT", "successor"), ("SAME", "same"), (f"GONE/{SYSTEM}", "gone"),
    ]  # fmt: skip
    by_name = {row.name: row for row in rows}
    assert by_name["NEXT"].before == f"NEXT/{SYSTEM}, v4.0"
    assert by_name["SAME"].difference.startswith("-7.")
    assert by_name["FRESH"].score_before == by_name["FRESH"].difference == "\N{EN DASH}"
    assert by_name[f"GONE/{SYSTEM}"].score == "\N{EN DASH}"


def test_new_findings_and_another_batch_size_are_told(tmp_path: Path) -> None:
    before = write_package(tmp_path / "a")
    after = write_package(tmp_path / "b")
    file = next(after.rglob("result_0.txt"))
    file.write_text(file.read_text().replace('"key": "opt_name", "value": "adam"', '"key": "opt_name", "value": "sgd"'))
    (row,) = changes(judged([after]).systems, ["ours"], judged([before]).systems)
    assert any(one.startswith("new error value.") for one in row.other), row.other
    assert "review acceptable, now rejected" in row.other
