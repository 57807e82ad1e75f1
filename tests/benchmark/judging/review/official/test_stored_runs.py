"""An official tool is asked once about the same bytes; whatever it reads, and its version, is part of the key."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmark.judging.review.official import stored_runs
from benchmark.judging.review.official.stored_runs import StoredRun, StoredRuns, digest_of
from benchmark.judging.review.official.tool_process import tool_process
from benchmark.judging.review.verdict import Review, review
from tests.benchmark.judging.review.fixture import SEEDS, Log, as_text, records, write_run

RUN = StoredRun(0, "{folder}/a: fine", "[]", 1.5)


def told(found: Review) -> list[tuple[str, str, tuple[str, ...], float]]:
    return [(one.tool, one.outcome, one.complaints, one.seconds) for each in found.subjects for one in each.checks]


def test_a_review_of_the_same_bytes_asks_no_tool_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmark.judging.review.verdict.usual_folder", lambda: tmp_path / "store")
    log = Log(records(SEEDS[0]))
    log.without("opt_name")
    paths = [write_run(tmp_path / "a", log.records), write_run(tmp_path / "b", records(SEEDS[1]))]
    first = review(paths, "4.1.0")
    again = review(paths, "4.1.0")
    assert [outcome for _, outcome, *_ in told(first)] == ["failed", "passed", "passed"]
    assert told(again) == told(first)
    assert "no network" in first.sandbox and again.sandbox == "3 outcomes taken from earlier reviews of the same bytes"
    moved = tmp_path / "elsewhere"
    (tmp_path / "a").rename(moved)
    found = review([moved / paths[0].name], "4.1.0")
    assert [(str(moved) in one.subject, one.complaints) for one in found.subjects[0].checks] == [
        (True, told(first)[0][2])
    ]
    paths[1].write_text(as_text(log.records))
    assert told(review([paths[1]], "4.1.0"))[0][1] == "failed"


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda folder: (folder / "a").write_text("other"),
    "name": lambda folder: (folder / "a").rename(folder / "b"),
    "another file": lambda folder: (folder / "sub" / "b").write_text(""),
    "another folder": lambda folder: (folder / "c").mkdir(),
    "link": lambda folder: (folder / "link").symlink_to("a"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_digest_is_of_all_that_a_tool_reads(change: Callable[[Path], object], tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "a").write_text(f"{tmp_path / name}/rules")
    digests = [digest_of("tool", ["x"], tmp_path / name, "{folder}") for name in ("first", "second")]
    assert digests[0] == digests[1]
    assert len({digests[0], digest_of("tool", ["y"], tmp_path / "first", ""), digest_of("z", ["x"], tmp_path, "")}) == 3
    change(tmp_path / "second")
    assert digest_of("tool", ["x"], tmp_path / "second", "{folder}") != digests[0]


def test_a_store_that_others_may_write_or_that_is_damaged_is_not_read(tmp_path: Path) -> None:
    private = StoredRuns(tmp_path / "store")
    private.put("digest", RUN)
    assert (private.get("digest"), private.get("none"), private.reused) == (RUN, None, 1)
    (tmp_path / "store" / "digest").write_bytes(b"\x1f\x8b damaged")
    assert private.get("digest") is None
    private.put("digest", RUN)
    (tmp_path / "store").chmod(0o777)
    assert StoredRuns(tmp_path / "store").get("digest") is None
    (tmp_path / "link").symlink_to(tmp_path / "store")
    assert StoredRuns(tmp_path / "link").get("digest") is None
    nothing = StoredRuns(tmp_path / "store" / "digest" / "below")
    nothing.put("digest", RUN)
    nothing.sweep()
    assert nothing.get("digest") is None


def test_the_oldest_half_of_too_many_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_runs, "MOST_RUNS", 3)
    with tool_process(tmp_path / "store") as tools:
        for number in range(4):
            tools.stored.put(f"{number}", RUN)
            os.utime(tmp_path / "store" / f"{number}", (number, number))
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["2", "3"]
