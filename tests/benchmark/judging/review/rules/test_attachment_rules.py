"""Evidence and power logs beside a made-up result, honest and otherwise."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from benchmark.judging.results.subjects import ResultSet, SubmissionPackage, find_subjects
from benchmark.judging.review.findings import Finding, Rule, apply
from benchmark.judging.review.rules.rule_table import SET_RULES
from benchmark.run_record.evidence_chain import BeginRecord, EndRecord, OptimizerStepRecord, encode
from benchmark.run_record.file_names import EVIDENCE_FILE
from tests.benchmark.judging.review.fixture import SEEDS, SYSTEM, Log, Record, as_text, records, write_package
from tests.benchmark.run_record.records import begin, signed, step

PLACE = f"benchmarks/gpt3/implementations/{SYSTEM}/evidence/result_1"
NODES = 64
WATTS = 9000.0
"""Of a node of eight devices."""
Edit = Callable[[list[Record]], list[Record]]


def rules(family: str) -> list[Rule[ResultSet]]:
    return [rule for rule in SET_RULES if rule.name.startswith(family)]


def findings(package: Path) -> list[Finding]:
    sets = SubmissionPackage(package, "4.1.0").sets
    return [finding for one in sets for finding in apply(rules("evidence."), one, package)]


def write_evidence(folder: Path, log: Path, records: list[BeginRecord | OptimizerStepRecord]) -> None:
    """A chain, and its last digest in a log that is there."""
    lines = signed(records)
    log.write_text(log.read_text() + f"# {lines[-1][1]}\n")
    digest = hashlib.sha256(log.read_bytes()).hexdigest()
    lines.append(encode(EndRecord("0001", records[-1].step, "success", digest), lines[-1][1]))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / EVIDENCE_FILE).write_bytes(b"".join(line + b"\n" for line, _ in lines))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """One of three runs has evidence."""
    package = write_package(tmp_path)
    log = package / f"results/{SYSTEM}/gpt3/result_1.txt"
    write_evidence(package / PLACE, log, [begin(), step(1), step(2)])
    return package


def test_evidence_that_holds_is_a_note(package: Path) -> None:
    (note,) = findings(package)
    assert (note.rule, note.severity, note.observed) == ("evidence.chain", "note", "evidence of 2 steps")
    assert "python -m benchmark replay" in note.expected


def test_a_run_without_evidence_is_no_finding(tmp_path: Path) -> None:
    assert findings(write_package(tmp_path)) == []


@pytest.mark.parametrize(("links", "expected"), [((), "missing"), ((1, 2), "cut"), ((1, 2, 3), "")])
def test_evidence_whose_digest_a_log_holds_is_asked_for(links: tuple[int, ...], expected: str, tmp_path: Path) -> None:
    """The log has the digest of the third step: evidence that is not there, or ends before it, is a question."""
    lines = signed([begin(), step(1), step(2), step(3)])
    log = Log(records(SEEDS[1]))
    log.insert("run_stop", "evidence", lines[3][1])
    package = write_package(tmp_path)
    (package / f"results/{SYSTEM}/gpt3/result_1.txt").write_text(as_text(log.records))
    if links:
        (package / PLACE).mkdir(parents=True)
        content = b"".join(line + b"\n" for line, _ in lines[: 1 + len(links)])
        (package / PLACE / EVIDENCE_FILE).write_bytes(content)
    questions = [one.observed for one in findings(package) if one.severity == "warning"]
    told = {"missing": "the digest of evidence that is not here", "cut": "a digest that the evidence does not have"}
    assert questions == ([told[expected]] if expected else [])


@pytest.mark.parametrize(
    ("name", "content", "question"),
    [
        ("config.json", '{"precision": "bf16", "run_dir": "/x"}', ""),
        ("config.json", '{"precision": "fp8", "run_dir": "/x"}', "a configuration that the evidence does not have"),
        ("config.json", '{"data": {"seed": 7}}', ""),
        ("config.json", '{"data": {"seed": 8}}', "a configuration that the evidence does not have"),
        ("config.json", "{", "a configuration that the evidence does not have"),
        ("inputs.json", '{"train": [{"facts": {"bytes": 7}, "md5": "a"}]}', ""),
        ("inputs.json", '{"train": [{"facts": {"bytes": 8}, "md5": "a"}]}', "inputs that the evidence does not have"),
        ("inputs.json", '{"train": [[], {"facts": 7}, 7], "valid": 7}', ""),
        ("inputs.json", "[" * 100_000, ""),
    ],
)
def test_configuration_and_inputs_are_those_of_the_evidence(
    name: str, content: str, question: str, package: Path
) -> None:
    began = replace(begin(), config={"precision": "bf16", "seed": 7}, inputs={"train 0": {"bytes": 7, "md5": "a"}})
    log = package / f"results/{SYSTEM}/gpt3/result_1.txt"
    write_evidence(package / PLACE, log, [began, step(1), step(2)])
    (package / PLACE / name).write_text(content)
    assert [one.observed for one in findings(package) if one.severity != "note"] == [question] * bool(question)


@pytest.mark.parametrize(
    ("damage", "severity", "told"),
    [
        (lambda text: text.replace('"step":2', '"step":1'), "error", "the line: it was changed since"),
        (lambda text: text[:-200], "note", "the chain has no end"),
        (lambda text: text.replace('"version":2', '"version":1'), "note", "evidence of form 1; this version"),
        (lambda text: "", "note", "evidence of 0 steps"),
    ],
    ids=["changed", "cut off", "an older form", "empty"],
)
def test_what_is_told_of_a_damaged_chain(damage: Callable[[str], str], severity: str, told: str, package: Path) -> None:
    chain = package / PLACE / EVIDENCE_FILE
    chain.write_text(damage(chain.read_text()))
    found = findings(package)
    assert any(told in one.observed and one.severity == severity for one in found)
    assert severity == "error" or not any(one.severity == "error" for one in found)


def test_an_exchanged_log_is_an_error(package: Path) -> None:
    log = package / f"results/{SYSTEM}/gpt3/result_1.txt"
    log.write_text(log.read_text() + "\n")
    (error,) = [one for one in findings(package) if one.severity == "error"]
    assert (error.line, error.observed[:44]) == (4, "step 2: SHA-256 of result_1.txt, the MLPerf ")


def test_evidence_of_a_run_folder(package: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run_0"
    folder.mkdir()
    (folder / "result_0.txt").write_bytes((package / f"results/{SYSTEM}/gpt3/result_0.txt").read_bytes())
    write_evidence(folder, folder / "result_0.txt", [begin(), step(1)])
    (subject,) = find_subjects([folder], "4.1.0")
    assert isinstance(subject, ResultSet)
    assert [one.rule for one in apply(rules("evidence."), subject, folder)] == ["evidence.chain"]


def power_log(seed: int, watts: float = WATTS) -> list[Record]:
    """A reading each minute, from ten seconds before the run to ten seconds after it."""
    run = Log(records(seed))
    start, stop = run.time("run_start"), run.time("run_stop")

    def record(key: str, time_ms: int, value: Any = None) -> Record:
        fields = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key, "value": value}
        return {**fields, "metadata": {}}

    times = [*range(start + 50_000, stop + 10_000, 60_000), stop + 10_000]
    readings = [record("power_reading", time, watts) for time in times]
    ends = [record("power_measurement_start", start - 10_000), record("power_measurement_stop", stop + 10_000)]
    return [ends[0], *readings, ends[1]]


def told(folder: Path, edit: Edit = lambda log: log, nodes: int = NODES, watts: float = WATTS) -> list[str]:
    """Rules and what they found in a package whose nodes all have such logs of the first run."""
    package = write_package(folder)
    place = package / "results" / SYSTEM / "gpt3" / "power" / "result_0"
    place.mkdir(parents=True)
    text = as_text(edit(power_log(SEEDS[0], watts)))
    for number in range(nodes):
        (place / f"node_{number}.txt").write_text(text)
    (one,) = SubmissionPackage(package, "4.1.0").sets
    return sorted({f"{finding.rule}: {finding.observed}" for finding in apply(rules("power."), one, package)})


def of_key(key: str, **changes: Any) -> Edit:
    return lambda log: [{**one, **changes} if one["key"] == key else one for one in log]


def test_honest_logs(tmp_path: Path) -> None:
    assert told(tmp_path) == []
    without_stop: Edit = lambda log: log[:-1]  # noqa: E731
    assert told(tmp_path / "again", without_stop) == []


@pytest.mark.parametrize(
    ("edit", "nodes", "watts", "expected"),
    [
        (None, 64, 6.5, "power.energy: "),
        (None, 64, 9e6, "power.energy: 1,125,000 W for each of 512 accelerators"),
        (None, 63, WATTS, "power.energy: power logs of 63 nodes"),
        (lambda log: log[1:], 64, WATTS, "power.energy: 0 power_measurement_start, 1 power_measurement_stop"),
        (lambda log: [log[0], *log], 64, WATTS, "power.energy: 2 power_measurement_start"),
        (lambda log: [log[0], log[-1]], 64, WATTS, "power.energy: 1 power_measurement_start, 1 power_measurement_stop"),
        (of_key("power_reading", value=-1), 64, WATTS, "power.energy: 1 power_measurement_start"),
        (of_key("power_reading", value={"value": 9000}), 64, WATTS, "power.energy: could not convert"),
        (lambda log: [*log[:20], log[-1]], 64, WATTS, "power.energy: "),
        (
            lambda log: [log[0], *log[1:20], {**log[-1], "time_ms": log[19]["time_ms"]}],
            64,
            WATTS,
            "power.energy: 1,990 s of 3,120 s without a reading",
        ),
        (
            lambda log: [{**log[0], "key": "conversion_eff", "value": 0.5}, *log],
            64,
            WATTS,
            "power.energy: conversion_eff 0.5, by which",
        ),
        (lambda log: [], 64, WATTS, "power.energy: 0 power_measurement_start"),
    ],
)
def test_what_cannot_be_the_energy(edit: Edit | None, nodes: int, watts: float, expected: str, tmp_path: Path) -> None:
    found = told(tmp_path, edit or (lambda log: log), nodes, watts)
    assert any(one.startswith(expected) for one in found), found
    assert not any(one.startswith("review.") for one in found)
