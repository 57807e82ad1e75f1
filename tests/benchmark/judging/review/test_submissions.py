"""Honest submissions are not rejected; whatever is wrong with one is told, by which rule, how, and where."""

import dataclasses
import inspect
import itertools
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from benchmark.judging.results.judged import DISCLOSURE, LLAMA8B, OFFICIAL
from benchmark.judging.results.subjects import SubmissionPackage
from benchmark.judging.review.findings import Finding, Rule
from benchmark.judging.review.rules.rule_table import LOG_RULES, PACKAGE_RULES, ROUND_RULES, SET_RULES
from benchmark.judging.review.verdict import own_findings
from benchmark.run_record.events import mllog
from benchmark.run_record.events.mllog import ResultLog, parse_log
from tests.benchmark.judging.review.faulty_submissions import FAULTS, Fault
from tests.benchmark.judging.review.fixture import (
    LLAMA_N1,
    LLAMA_N8,
    ORG,
    Log,
    Submission,
    made_up,
    records,
    records_of,
    with_steps,
    write_package,
)
from tests.benchmark.judging.review.honest_submissions import HONEST
from tests.benchmark.judging.review.llama_mistakes import MISTAKES, WITH_CONSEQUENCES
from tests.benchmark.judging.review.llama_variants import VARIANTS
from tests.benchmark.judging.review.restarted_runs import RESTARTS
from tests.benchmark.judging.review.submission_changes import Trial, each, run, trained
from tests.support import REPOSITORY

WHOLE_FILE = ("not a text file", "results without gpt3/")
"""Faults that have no line."""
MORE = ("two run_starts",)
"""Faults that are a question, from which an error follows."""
SECTIONS = (REPOSITORY / "docs" / "facts" / "mlperf_review.md").read_text()


@lru_cache(64)
def parsed(content: bytes) -> ResultLog:
    return parse_log(Path("result.txt"), content)


@pytest.fixture(autouse=True)
def equal_logs_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most logs of a changed submission are those of the honest one."""
    monkeypatch.setattr(mllog, "parse_log", lambda path, content: dataclasses.replace(parsed(content), path=path))


def findings(package: Path, ruleset: str = "4.1.0") -> tuple[Finding, ...]:
    return own_findings(SubmissionPackage(package, ruleset))


def told(package: Path, ruleset: str = "4.1.0") -> list[str]:
    return [f"{one.severity} {one.rule}" for one in findings(package, ruleset)]


def test_every_rule_has_its_sections_and_what_it_says_and_no_name_comes_twice() -> None:
    rules: list[Rule[Any]] = [rule for table in (LOG_RULES, SET_RULES, PACKAGE_RULES, ROUND_RULES) for rule in table]
    assert len({rule.name for rule in rules}) == len(rules)
    for rule in rules:
        found = re.fullmatch(r"(\d[\d., ]*)(?:; \S.*)?", rule.source)
        assert found, rule.source
        for section in found[1].split(", "):
            assert re.search(rf"(?m)^(### {re.escape(section)} |- \*\*{re.escape(section)}\*\*)", SECTIONS), rule
        assert rule.mend or rule.severity != "error", rule.name
        assert rule.question or rule.severity != "warning", rule.name


def test_every_case_of_the_table_is_a_benchmark_or_stands_in_its_rules_module() -> None:
    tables: tuple[Sequence[Rule[Any]], ...] = (LOG_RULES, SET_RULES, PACKAGE_RULES, ROUND_RULES)
    for rule in itertools.chain.from_iterable(tables):
        source = inspect.getsource(inspect.getmodule(rule.check) or rule)  # type: ignore[arg-type]
        for case in rule.cases:
            assert case.removesuffix(" early") in (*OFFICIAL, *DISCLOSURE) or f'"{case}"' in source, (rule.name, case)


def test_there_are_enough_variants_and_faults_and_each_has_a_name() -> None:
    of_llama = [one.name for one in HONEST if not one.bases] + [name for name, _ in VARIANTS]
    tables = ([one.name for one in HONEST], [one.name for one in FAULTS], of_llama, [name for name, *_ in MISTAKES])
    for names in tables:
        assert len({*names}) == len(names) >= 60


@pytest.mark.parametrize(("batch_size", "evaluations"), [(1536, 24), (3072, 25), (2688, 22), (4096, 26)])
def test_package_without_fault_has_no_finding(batch_size: int, evaluations: int, tmp_path: Path) -> None:
    rate = 3e-5 if batch_size == 4096 else 2e-5
    package = write_package(
        tmp_path, lambda seed: records(seed, batch_size=batch_size, evaluations=evaluations, rate=rate)
    )
    assert told(package) == (["note rcp.test"] if 2048 < batch_size < 4096 else [])


@pytest.mark.parametrize("trial", HONEST, ids=lambda one: one.name)
def test_honest_submission_has_no_error(trial: Trial, tmp_path: Path) -> None:
    one = with_steps() if trial.bases[:1] == ("steps",) else made_up()
    trial.change(one)
    found = findings(one.write(tmp_path / ORG))
    assert [(one.rule, one.observed) for one in found if one.severity == "error"] == []
    questions = [one.rule for one in found if one.severity == "warning"]
    assert len(questions) <= 1, questions
    if trial in RESTARTS:
        assert questions == ["runs.lost_time"]


OF_GPT3 = ("keys of its own: keys of HPU",)
"""Variants with a key whose value is that of gpt3."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "trial", [one for one in HONEST if not one.bases and one.name not in OF_GPT3], ids=lambda one: one.name
)
def test_honest_submission_of_llama_has_no_error(trial: Trial, tmp_path: Path) -> None:
    one = made_up(LLAMA_N1)
    trial.change(one)
    found = findings(one.write(tmp_path / ORG), "6.1.0")
    assert [(one.rule, one.observed) for one in found if one.severity == "error"] == []
    assert len([one.rule for one in found if one.severity == "warning"]) <= 1


@pytest.mark.parametrize(("name", "change"), VARIANTS, ids=[name for name, _ in VARIANTS])
def test_variant_of_llama_is_accepted(name: str, change: Callable[[Submission], object], tmp_path: Path) -> None:
    one = made_up(LLAMA_N1)
    change(one)
    raised = [line for line in told(one.write(tmp_path / ORG), "6.1.0") if not line.startswith("note")]
    assert raised == (["warning runs.failed"] if name.startswith("one run that") else [])


@pytest.mark.parametrize(("name", "due", "change"), MISTAKES, ids=[name for name, *_ in MISTAKES])
def test_mistake_of_llama_is_told(name: str, due: str, change: Callable[[Submission], object], tmp_path: Path) -> None:
    """Alone, unless other findings follow from it."""
    one = made_up(LLAMA_N1)
    change(one)
    raised = [line for line in told(one.write(tmp_path / ORG), "6.1.0") if not line.startswith("note")]
    assert due in raised
    assert raised == [due] or name in WITH_CONSEQUENCES


@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: one.name)
def test_fault_is_told_with_file_and_line(fault: Fault, tmp_path: Path) -> None:
    one = with_steps() if fault.steps else made_up()
    line = fault.change(one)
    package = one.write(tmp_path / ORG)
    found = [one for one in findings(package) if one.severity != "note"]
    due = "warning" if fault.rule.startswith("?") else "error"
    mine = [one for one in found if (one.rule, one.severity) == (fault.rule.removeprefix("?"), due)]
    assert mine, f"only {[(one.rule, one.location, one.observed) for one in found]}"
    assert due == "error" or fault.name in MORE or all(one.severity == due for one in found), found
    places = [re.sub(r":\d+$", "", place) for one in mine for place in (one.location, *one.also)]
    assert fault.path is None or any(Path(place) == package / fault.path for place in places), places
    if fault.path is not None and isinstance(line, int):
        assert line in [one.line for one in mine]
    if fault.path is not None and fault.path.endswith(".txt") and fault.name not in WHOLE_FILE:
        assert all(one.line is not None for one in mine)
    for finding in mine:
        assert all(text.strip() for text in (finding.observed, finding.expected, finding.source))
        assert finding.question if due == "warning" else finding.mend


@pytest.mark.parametrize("ruleset", LLAMA8B.rulesets)
def test_llama_on_one_node_and_on_eight_has_nothing_to_ask(ruleset: str, tmp_path: Path) -> None:
    made_up(LLAMA_N1).write(tmp_path)
    assert told(made_up(LLAMA_N8).write(tmp_path), ruleset) == []


def _pauses(log: Log) -> None:
    """Write a checkpoint after every second evaluation."""
    for place in log.places("eval_accuracy")[1:14:2]:
        log.shift(place + 1, 10_000)


def _coarse_values(log: Log) -> None:
    for place in log.places("eval_accuracy"):
        log.records[place]["value"] = round(log.records[place]["value"], 3)


def _other_cadence(log: Log) -> None:
    """Leave every second evaluation out."""

    def kept(count: int) -> bool:
        return count == 0 or count // 12288 % 2 == 1

    log.records = [record for record in log.records if kept(record["metadata"].get("samples_count", 0))]


def _counted_anew(log: Log) -> None:
    """Let the samples of the second half begin with those of the first evaluation."""
    half = log.places("eval_accuracy")[len(log.values) // 2]
    gone = trained(log.records[half])
    for record in log.records[half + 1 :]:
        if "samples_count" in record["metadata"]:
            record["metadata"]["samples_count"] = max(0, record["metadata"]["samples_count"] - gone)


def _two_in_a_file(one: Submission) -> None:
    """Append the log of the next run to a file."""
    one.logs[1].records += [dict(record) for record in one.logs[2].records]


def _other_benchmark(one: Submission) -> None:
    one.logs[1].records = records(1001)


LLAMA: tuple[tuple[str, str, Callable[[Submission], object], list[str]], ...] = (
    ("all slow down alike", "6.1.0", each(lambda log: log.stretch(lambda share: 1 + 0.015 * share)), []),
    ("a pause after every second block", "6.1.0", each(_pauses), []),
    (
        "a fall of 0.3 near the target", "6.1.0",
        run(1, lambda log: [log.set("eval_accuracy", value + 0.3, n) for n, value in enumerate(log.values[:-2])]),
        ["warning curve.sudden"],
    ),
    (
        "samples counted anew after a restart", "6.1.0", run(1, _counted_anew), ["warning curve.sudden"],
    ),
    ("32 layers", "6.1.0", each(lambda log: log.insert("init_stop", "num_layers", 32)), []),
    (
        "other sizes of the model", "6.1.0",
        each(lambda log: [log.insert("init_stop", "num_layers", 16), log.insert("init_stop", "hidden_dropout", 0.1)]),
        ["error value.fixed", "error value.fixed"],
    ),
    ("a file of two logs", "6.1.0", _two_in_a_file, ["error record.two_runs"]),
    ("values of three decimals", "6.1.0", each(_coarse_values), []),
    ("float32 end rate", "6.1.0", each(lambda log: log.set("opt_end_learning_rate", 7.999999797903001e-05)), []),
    ("no key of 6.1.0 in an older round", "6.0.0", run(1, lambda log: log.without("config_filename")), []),
    ("no key of 6.1.0", "6.1.0", run(1, lambda log: log.without("config_filename")), ["error key.present"]),
    ("nine runs", "6.1.0", lambda one: one.logs.pop(), ["error package.layout"]),
    (
        "eleven runs", "6.1.0", lambda one: one.logs.append(Log(records_of(LLAMA_N1, 71463))),
        ["error package.layout"],
    ),
    (
        "decay steps with the warm-up", "5.1.0",
        run(1, lambda log: log.set("opt_learning_rate_decay_steps", 1_200_000)),
        ["error schedule.formula", "error runs.settings"],
    ),
    (
        "more sequences evaluated than there are", "6.1.0", run(1, lambda log: log.set("eval_samples", 1056)),
        ["error eval.samples", "error runs.settings"],
    ),
    (
        "a benchmark that is none", "6.1.0", run(1, lambda log: log.set("submission_benchmark", "llama3_8b")),
        ["error value.benchmark"],
    ),
    (
        "a log of another benchmark", "6.1.0", _other_benchmark,
        ["error value.benchmark", "error rcp.test", "error package.layout"],
    ),
    ("another cadence", "6.1.0", run(1, _other_cadence), ["warning eval.cadence", "warning speed.block"]),
    (
        "the seed of another run", "6.1.0", run(1, lambda log: log.set("seed", LLAMA_N1.seeds[0])),
        ["error runs.seeds"],
    ),
)  # fmt: skip
"""Changes to a made-up submission of Llama 3.1, the ruleset, and all that is told."""


@pytest.mark.parametrize(("name", "ruleset", "change", "due"), LLAMA, ids=[name for name, *_ in LLAMA])
def test_changes_to_llama(
    name: str, ruleset: str, change: Callable[[Submission], object], due: list[str], tmp_path: Path
) -> None:
    one = made_up(LLAMA_N1)
    change(one)
    assert told(one.write(tmp_path), ruleset) == due, name
