"""What the official tools are given: files written anew, under names that no tool stumbles over."""

import json
import os
from pathlib import Path

import pytest

from benchmark.judging.results.subjects import SubmissionPackage
from benchmark.judging.review.official import subject_copies
from benchmark.judging.review.official.subject_copies import (
    MOST_IN_REPOSITORY,
    SubjectCopies,
    repository_name,
    safe_name,
)
from tests.benchmark.judging.review.fixture import SYSTEM, write_package


def test_package_is_copied_with_plain_names_records_only_and_statuses_of_today(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    results = package / "results" / SYSTEM / "gpt3"
    description = package / "systems" / f"{SYSTEM}.json"
    content = json.loads(description.read_text())
    description.write_text(json.dumps({**content, "status": "onprem"}))
    log = (results / "result_0.txt").read_bytes()
    (results / "result_0.txt").write_bytes(b"progress: 1 %\r\n" + log)
    with (results / "result_1.txt").open("wb") as file:
        file.truncate(1 << 40)
    (results / "a[1].txt").write_text("")
    (results / "code.py").write_text("raise SystemExit")
    (results / "package_checker_params").write_text("rcp-bypass\nanything\nseed-checker-bypass")
    (package / "results" / SYSTEM / "bert").mkdir()
    copies = SubjectCopies(tmp_path / "scratch")
    copies.add_package(SubmissionPackage(package, "4.0.0"), "copy")
    target = f"copy/results/{SYSTEM}/gpt3"
    copied = tmp_path / "scratch" / target
    assert (copied / "result_0.txt").read_bytes() == log
    assert (copied / "result_1.txt").read_bytes() == (copied / "code.py").read_bytes() == b""
    assert (copied / "package_checker_params").read_text() == "rcp-bypass\n-\nseed-checker-bypass"
    assert not (copied.parent / "bert").exists()
    assert copies.renamed[f"{target}/{safe_name('a[1].txt')}"] == str(results / "a[1].txt")
    assert (
        json.loads((tmp_path / f"scratch/copy/systems/{SYSTEM}.json").read_text())["status"] == "Available on-premise"
    )
    pattern, empty, statuses = sorted(copies.notes)
    assert pattern.startswith("the tools got 'a[1].txt' as _a_1__")
    assert empty.startswith("the tools got 'result_1.txt' empty: ")
    assert statuses == "the tools got today's words for the statuses of round 4.0"


def test_a_large_log_is_copied_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject_copies, "MOST_COPIED", 3000)
    log = tmp_path / "result_0.txt"
    log.write_bytes(b':::MLLOG {"key": "a", "value": 1}\n' * 100)
    copies = SubjectCopies(tmp_path / "scratch")
    copies.add(log, "result_0.txt")
    assert (tmp_path / "scratch" / "result_0.txt").read_bytes() == b""
    assert "more than 3,000" in next(iter(copies.notes))


def test_what_cannot_be_read_as_json_is_a_brace(tmp_path: Path) -> None:
    for number, content in enumerate((b'{"a": \xff}', b"[" * 100_000, b"\xef\xbb\xbf{}", b"nothing")):
        path = tmp_path / f"{number}.json"
        path.write_bytes(content)
        SubjectCopies(tmp_path / "scratch").add(path, path.name)
        assert (tmp_path / "scratch" / path.name).read_bytes() == b"{"


def test_copies_of_copies_keep_names_notes_and_refusals(tmp_path: Path) -> None:
    bad, good = tmp_path / "bad.txt", tmp_path / "good.txt"
    bad.write_text(':::MLLOG {"key": "submission_division", "value": "../x"}\n')
    good.write_text(':::MLLOG {"key": "submission_division", "value": "closed"}\n')
    copies = SubjectCopies(tmp_path / "scratch")
    copies.add_runs([bad, good], "runs")
    first = copies.copy_to(tmp_path / "first", {"runs/result_0.txt": "log.txt"})
    second = copies.copy_to(tmp_path / "second", {"runs/result_1.txt": "log.txt"})
    everything = copies.copy_to(tmp_path / "everything")
    assert (first.renamed, second.renamed) == ({"log.txt": str(bad)}, {"log.txt": str(good)})
    assert list(first.refusals) == ["log.txt"] and second.refusals == {}
    assert list(everything.refusals) == ["runs/result_0.txt"]
    assert (second.folder / "log.txt").read_bytes() == (everything.folder / "runs/result_1.txt").read_bytes() != b""


def test_the_repository_checker_gets_names_kinds_and_sizes(tmp_path: Path) -> None:
    package = tmp_path / "ACME"
    (package / "benchmarks" / ".hidden").mkdir(parents=True)
    (package / "benchmarks" / "a b").write_text("content")
    with (package / "benchmarks" / "large").open("wb") as file:
        file.truncate(MOST_IN_REPOSITORY * 9)
    (package / "benchmarks" / "within").symlink_to(package / "benchmarks" / "large")
    (package / "benchmarks" / "relative").symlink_to("large")
    (package / "benchmarks" / "outside").symlink_to("/etc/passwd")
    os.mkfifo(package / "benchmarks" / "pipe")
    copies = SubjectCopies(tmp_path / "scratch")
    copies.add_repository(SubmissionPackage(package, "4.1.0"), "copy")
    copied = tmp_path / "scratch" / "copy" / "benchmarks"
    assert sorted(path.name for path in copied.iterdir()) == sorted(
        [repository_name("a b"), repository_name(".hidden"), "large", "outside", "pipe", "relative", "within"]
    )
    assert (copied / "large").stat().st_size == MOST_IN_REPOSITORY + 1
    assert (copied / repository_name("a b")).stat().st_size == (copied / "pipe").stat().st_size == 0
    links = {name: str((copied / name).readlink()) for name in ("within", "relative", "outside")}
    assert links == {"within": "/", "relative": "missing", "outside": "missing"}
    assert repository_name("a b").startswith(" ") and repository_name(".hidden").startswith(".")


def test_safe_names() -> None:
    assert safe_name("eos_n64-a+b.json") == "eos_n64-a+b.json"
    odd = ["a[1]", "a{1}", "-x.txt", ".hidden", "a b", "ä" * 120]
    names = [safe_name(one) for one in odd]
    assert len(set(names)) == len(odd)
    assert safe_name("a.b[1].json") == f"{safe_name('a.b[1]')}.json"
    assert all(name.isascii() and name[0] == "_" and len(name) < 100 and safe_name(name) == name for name in names)
