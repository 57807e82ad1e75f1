"""What the official tools are given: every file as it is, under names that no tool stumbles over."""

import json
from pathlib import Path

from benchmark.results.subjects import SubmissionPackage
from benchmark.review.scratch_copies import MOST_COPIED, ScratchCopies, safe_name
from tests.benchmark.review.fixture import SYSTEM, write_package


def test_package_is_copied_with_plain_names_records_only_and_statuses_of_today(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    results = package / "results" / SYSTEM / "gpt3"
    description = package / "systems" / f"{SYSTEM}.json"
    content = json.loads(description.read_text())
    description.write_text(json.dumps({**content, "status": "onprem"}))
    log = (results / "result_0.txt").read_bytes()
    (results / "result_0.txt").write_bytes(b"progress: 1 %\r\n" + log)
    with (results / "result_1.txt").open("wb") as file:
        file.write(b":::MLLOG " + b"x" * MOST_COPIED)
    (results / "a[1].txt").write_text("")
    (package / "results" / SYSTEM / "bert").mkdir()
    copies = ScratchCopies(tmp_path / "scratch")
    copies.add_package(SubmissionPackage(package, "4.0.0"))
    there = tmp_path / "scratch" / "results" / SYSTEM
    assert (there / "gpt3" / "result_0.txt").read_bytes() == log
    assert (there / "gpt3" / "result_1.txt").read_bytes() == b""
    assert not (there / "bert").exists()
    assert copies.renamed[str(there / "gpt3" / safe_name("a[1].txt"))] == str(results / "a[1].txt")
    assert json.loads((tmp_path / "scratch/systems" / f"{SYSTEM}.json").read_text())["status"] == "Available on-premise"
    pattern, empty, statuses = sorted(copies.notes)
    assert pattern.startswith("the tools got 'a[1].txt' as _a_1__")
    assert empty.startswith("the tools got 'result_1.txt' empty: ")
    assert statuses == "the tools got today's words for the statuses of round 4.0"


def test_safe_names() -> None:
    assert safe_name("eos_n64-a+b.json") == "eos_n64-a+b.json"
    odd = ["a[1]", "a{1}", "-x.txt", ".hidden", "a b", "ä" * 120]
    names = [safe_name(one) for one in odd]
    assert len(set(names)) == len(odd)
    assert safe_name("a.b[1].json") == f"{safe_name('a.b[1]')}.json"
    assert all(name.isascii() and name[0] == "_" and len(name) < 100 and safe_name(name) == name for name in names)
