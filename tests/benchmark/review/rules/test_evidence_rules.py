"""Evidence beside a log, and in a package: a broken link is an error, everything else a note."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmark.evidence.chain import EVIDENCE, Begin, End, Step, encode
from benchmark.results.subjects import ResultSet, SubmissionPackage, find_subjects
from benchmark.review.findings import Finding, apply
from benchmark.review.rules.rule_table import SET_RULES
from tests.benchmark.evidence.records import begin, signed, step
from tests.benchmark.review.fixture import SYSTEM, write_package

RULES = [rule for rule in SET_RULES if rule.name.startswith("evidence.")]
PLACE = f"benchmarks/gpt3/implementations/{SYSTEM}/evidence/result_1"


def findings(package: Path) -> list[Finding]:
    sets = SubmissionPackage(package, "4.1.0").sets
    return [finding for one in sets for finding in apply(RULES, one, package)]


def write_evidence(folder: Path, log: Path, records: list[Begin | Step]) -> None:
    """A chain, and its last digest in a log that is there."""
    lines = signed(records)
    log.write_text(log.read_text() + f"# {lines[-1][1]}\n")
    digest = hashlib.sha256(log.read_bytes()).hexdigest()
    lines.append(encode(End("0001", records[-1].step, "success", digest), lines[-1][1]))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / EVIDENCE).write_bytes(b"".join(line + b"\n" for line, _ in lines))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """One of three runs has evidence."""
    package = write_package(tmp_path)
    log = package / f"results/{SYSTEM}/gpt3/result_1.txt"
    write_evidence(package / PLACE, log, [begin(), step(1), step(2)])
    return package


def test_evidence_that_holds_is_a_note(package: Path) -> None:
    (note,) = findings(package)
    assert (note.rule, note.severity, note.found) == ("evidence.chain", "note", "evidence of 2 steps")
    assert "python -m benchmark replay" in note.due


def test_a_run_without_evidence_is_no_finding(tmp_path: Path) -> None:
    assert findings(write_package(tmp_path)) == []


@pytest.mark.parametrize(
    ("damage", "severity", "told"),
    [
        (lambda text: text.replace('"step":2', '"step":1'), "error", "the line: it was changed since"),
        (lambda text: text[:-200], "note", "the chain has no end"),
        (lambda text: text.replace('"version":2', '"version":1'), "note", "evidence of form 1; this version"),
        (lambda text: "", "error", "the chain: no record"),
    ],
    ids=["changed", "cut off", "an older form", "empty"],
)
def test_what_is_told_of_a_damaged_chain(damage: Callable[[str], str], severity: str, told: str, package: Path) -> None:
    chain = package / PLACE / EVIDENCE
    chain.write_text(damage(chain.read_text()))
    assert any(told in one.found and one.severity == severity for one in findings(package))


def test_an_exchanged_log_is_an_error(package: Path) -> None:
    log = package / f"results/{SYSTEM}/gpt3/result_1.txt"
    log.write_text(log.read_text() + "\n")
    (error,) = [one for one in findings(package) if one.severity == "error"]
    assert (error.line, error.found[:44]) == (4, "step 2: SHA-256 of result_1.txt, the MLPerf ")


def test_evidence_of_a_run_folder(package: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run_0"
    folder.mkdir()
    (folder / "result_0.txt").write_bytes((package / f"results/{SYSTEM}/gpt3/result_0.txt").read_bytes())
    write_evidence(folder, folder / "result_0.txt", [begin(), step(1)])
    (subject,) = find_subjects([folder], "4.1.0")
    assert isinstance(subject, ResultSet)
    assert [one.rule for one in apply(RULES, subject, folder)] == ["evidence.chain"]
