"""A package with evidence, and what somebody may do to log, chain and folder."""

import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmark.evidence.chain_links import EVIDENCE
from benchmark.evidence.link_contents import BeginLink, Content, EvaluationLink, StepLink
from benchmark.evidence.tensor_prints import PRINT, as_text
from benchmark.results.subjects import SubmissionPackage, find_subjects
from benchmark.review.findings import Finding, apply
from benchmark.review.merged_findings import merged, quoted
from benchmark.review.rules.rule_table import PACKAGE_RULES, RESULT_RULES
from benchmark.review.verdict import own_findings
from tests.benchmark.review.evidenced import PLACE, START, evidenced_package, write_evidence, write_run
from tests.benchmark.review.fixture import SEEDS, SYSTEM, Record

LOG = f"results/{SYSTEM}/gpt3/result_1.txt"
CHAIN = f"{PLACE}/result_1/{EVIDENCE}"
CONFIG = f"{PLACE}/result_1/config.json"


OF_RESULTS = [rule for rule in RESULT_RULES if rule.name.startswith("evidence.")]
OF_PACKAGES = [rule for rule in PACKAGE_RULES if rule.name.startswith("evidence.")]


def findings(package: Path) -> list[Finding]:
    """Of evidence."""
    subject = SubmissionPackage(package, "4.1.0")
    of_sets = [finding for one in subject.sets for finding in apply(OF_RESULTS, one)]
    return quoted(merged([*of_sets, *apply(OF_PACKAGES, subject)]))


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return evidenced_package(tmp_path_factory.mktemp("evidenced"))


@pytest.fixture
def package(sound: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(sound, tmp_path / sound.name))


def test_evidence_that_fits_is_a_note(sound: Path) -> None:
    (note,) = findings(sound)
    assert (note.rule, note.severity, len(note.also)) == ("evidence.fits", "note", 2)
    assert note.found == "evidence of 288 steps, which fits the log"
    assert not [one for one in own_findings(SubmissionPackage(sound, "4.1.0")) if one.severity != "note"]


def test_evidence_of_a_run_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run_0"
    folder.mkdir()
    write_evidence(folder / "result_0.txt", folder, SEEDS[0])
    (subject,) = find_subjects([folder], "4.1.0")
    assert "evidence.fits" in [one.rule for one in own_findings(subject)]
    (folder / "result_0.txt").rename(folder / "result_3.txt")  # another run's then
    (subject,) = find_subjects([folder], "4.1.0")
    rules = {one.rule: one for one in own_findings(subject)}
    assert "evidence.fits" not in rules
    assert rules["evidence.not_here"].severity == "note"


def of_record(key: str, **changes: Any) -> Callable[[Record], Record]:
    return lambda record: {**record, **changes} if record["key"] == key else record


def of_link(kind: type[Content], step: int, **changes: Any) -> Callable[[Content], Content]:
    def edit(link: Content) -> Content:
        return dataclasses.replace(link, **changes) if isinstance(link, kind) and link.step == step else link

    return edit


def replaced(path: str, old: str, new: str) -> Callable[[Path], None]:
    def change(package: Path) -> None:
        text = (package / path).read_text()
        assert old in text
        (package / path).write_text(text.replace(old, new, 1))

    return change


def lines(path: str, kept: Callable[[list[str]], list[str]]) -> Callable[[Path], None]:
    def change(package: Path) -> None:
        text = (package / path).read_text().splitlines(keepends=True)
        (package / path).write_text("".join(kept(text)))

    return change


def moved(path: str, target: str) -> Callable[[Path], None]:
    def change(package: Path) -> None:
        (package / target).parent.mkdir(parents=True, exist_ok=True)
        (package / path).rename(package / target)

    return change


def anew(*edits: Any) -> Callable[[Path], None]:
    """The second run again, with edited links and log that fit each other by their digests."""
    return lambda package: write_run(package, 1, SEEDS[1], *edits)


def named_pipe(package: Path) -> None:
    (package / CHAIN).unlink()
    os.mkfifo(package / CHAIN)


def dangling(package: Path) -> None:
    (package / CHAIN).unlink()
    (package / CHAIN).symlink_to(package / CHAIN)


FIRST_WEIGHTS = as_text(np.array([SEEDS[0] * 10_000 + 5]), PRINT)
SAME: Callable[[Any], Any] = lambda given: given  # noqa: E731
CHEATS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a better evaluation": (
        anew(SAME, lambda r: {**r, "value": 2.6899} if r["metadata"].get("epoch_num") == 1207959552 else r),
        "evidence.contradicts",
        "log perplexity in the log: 2.6899",
    ),
    "log edited, chain kept": (
        replaced(LOG, '"opt_weight_decay", "value": 0.1', '"opt_weight_decay", "value": 0.2'),
        "evidence.contradicts",
        "SHA-256 of the log",
    ),
    "a link edited": (replaced(CHAIN, '"loss":2.7', '"loss":2.6'), "evidence.contradicts", "the chain: 1 links"),
    "a link left out": (lines(CHAIN, lambda t: [*t[:9], *t[10:]]), "evidence.contradicts", "the chain: 9 links"),
    "links swapped": (lines(CHAIN, lambda t: [*t[:4], t[5], t[4], *t[6:]]), "evidence.contradicts", "the chain: 4 li"),
    "the end cut off": (lines(CHAIN, lambda t: t[:-1]), "evidence.gap", "the chain's end: none"),
    "the last block cut off": (lines(CHAIN, lambda t: t[:-14]), "evidence.gap", "the chain's last step: 276"),
    "torn in a line": (lines(CHAIN, lambda t: [*t[:-1], t[-1][:40]]), "evidence.gap", "the chain's end: none"),
    "empty": (lines(CHAIN, lambda t: []), "evidence.contradicts", "the chain: no beginning"),
    "another learning rate": (
        anew(of_link(StepLink, 7, learning_rate=3e-5)),
        "evidence.contradicts",
        "step 7: learning rate: 3e-05",
    ),
    "samples from elsewhere": (anew(of_link(StepLink, 7, first_sample=0)), "evidence.contradicts", "step 7: first sam"),
    "a batch twice": (
        anew(of_link(StepLink, 7, tokens=f"{SEEDS[1] * 10_000 + 6:016x}")),
        "evidence.contradicts",
        "step 7: fingerprint of the tokens",
    ),
    "weights that stay": (
        anew(of_link(StepLink, 7, weights=as_text(np.array([SEEDS[1] * 10_000 + 6]), PRINT))),
        "evidence.contradicts",
        "step 7: weights: as before the step",
    ),
    "another seed in the log": (anew(SAME, of_record("seed", value=1)), "evidence.contradicts", "seed in the log: 1"),
    "another batch size": (
        anew(SAME, of_record("global_batch_size", value=4096)),
        "evidence.contradicts",
        "global_batch_size in the log: 4096",
    ),
    "a part of the validation set": (
        anew(lambda one: dataclasses.replace(one, scored_tokens=1_000_000) if isinstance(one, EvaluationLink) else one),
        "evidence.contradicts",
        "eval_samples in the log: 11590004",
    ),
    "a run that stopped sooner": (
        anew(SAME, lambda r: {**r, "time_ms": r["time_ms"] - 900_000} if r["key"] == "run_stop" else r),
        "evidence.contradicts",
        "run_stop in the log",
    ),
    "an evaluation that is not logged": (
        anew(SAME, lambda r: None if r["metadata"].get("epoch_num") == 100663296 else r),
        "evidence.contradicts",
        "step 24: evaluation in the log: none",
    ),
    "another configuration": (replaced(CONFIG, '"lr": 2e-05', '"lr": 3e-05'), "evidence.contradicts", "optimizer of"),
    "a configuration beyond all bounds": (
        replaced(CONFIG, '"num_layers": 96', '"num_layers": 1000000000'),
        "evidence.contradicts",
        "config.json: num_layers 1000000000",
    ),
    "no configuration": (lambda p: (p / CONFIG).unlink(), "evidence.contradicts", "config.json: no such file"),
    "not JSON": (
        lambda p: (p / CONFIG).write_text("["),
        "evidence.contradicts",
        "config.json: Expected `object`",
    ),
    "a pipe": (named_pipe, "evidence.contradicts", "evidence.jsonl: no such file"),
    "a link to itself": (dangling, "evidence.contradicts", "evidence.jsonl: no such file"),
    "a configuration of lists": (
        lambda p: (p / CONFIG).write_text("[]"),
        "evidence.contradicts",
        "Expected `object`, got `array`",
    ),
    "no chain": (lambda p: (p / CHAIN).unlink(), "evidence.left_out", "without the chain"),
    "the chain of another run": (
        lambda p: shutil.copyfile(p / CHAIN.replace("result_1", "result_0"), p / CHAIN),
        "evidence.same_run",
        "288 steps leave the weights of another run's",
    ),
    "one step of another run": (
        anew(of_link(StepLink, 5, weights=FIRST_WEIGHTS)),
        "evidence.same_run",
        "1 steps leave the weights of another run's, the first step 5",
    ),
    "another initial checkpoint": (
        anew(of_link(BeginLink, 0, state=dataclasses.replace(START, weights=START.exp_avg))),
        "evidence.other_start",
        "another initial checkpoint",
    ),
    "other data, by the run's own stamp": (
        anew(of_link(BeginLink, 0, inputs={"c4_en_6_c4_spm_text_document.bin": "0" * 32})),
        "evidence.other_data",
        "c4_en_6_c4_spm_text_document.bin with the MD5 sum 000",
    ),
    "other data than the other runs'": (
        anew(of_link(BeginLink, 0, inputs={"c4_en_6_c4_spm_text_document.bin": "0" * 32})),
        "evidence.other_start",
        "another file 'c4_en_6_c4_spm_text_document.bin'",
    ),
    "evidence of a fourth run": (
        moved(CHAIN, CHAIN.replace("result_1", "result_9")),
        "evidence.unread",
        "evidence of no result, in result_9/",
    ),
    "evidence set aside": (moved(CHAIN, f"{CHAIN}.set_aside_1"), "evidence.unread", "evidence of no result"),
}


@pytest.mark.parametrize("name", CHEATS)
def test_what_does_not_fit(name: str, package: Path) -> None:
    spoil, rule, words = CHEATS[name]
    spoil(package)
    found = findings(package)
    assert any(one.rule == rule and words in one.found for one in found), [(one.rule, one.found) for one in found]
    assert "review.rule_stopped" not in [one.rule for one in found]
    assert any(one.severity != "note" for one in found)


def test_a_finding_names_the_line_of_the_log(package: Path) -> None:
    anew(SAME, of_record("seed", value=1))(package)
    (finding,) = [one for one in findings(package) if one.found == "seed in the log: 1"]
    assert finding.path.endswith("result_1.txt")
    assert '"key": "seed"' in finding.text
    assert finding.due == f"{SEEDS[1]} in the chain"
    assert "Please send log, chain and configuration" in finding.question


def test_a_chain_that_is_too_large_is_said(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmark.review.rules.folders.evidence_rules.MOST_BYTES", 100_000)
    found = [one for one in findings(package) if one.rule == "evidence.contradicts"]
    assert "expected at most 100,000" in found[0].found


def test_many_chains_of_no_result_are_counted(package: Path) -> None:
    for number in range(30):
        (package / PLACE / f"run_{number}").mkdir()
        (package / PLACE / f"run_{number}" / EVIDENCE).write_text("")
    found = [one.found for one in findings(package) if one.rule == "evidence.unread"]
    assert len(found) == 13
    assert found[-1] == "18 more chains of no result"
