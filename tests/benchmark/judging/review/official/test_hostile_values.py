"""No value of a stranger makes an official tool execute, open or look up anything outside its copies."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmark.judging.review.official.subject_copies import SubjectCopies
from benchmark.judging.review.official.tool_process import ToolProcess, tool_process
from benchmark.judging.review.verdict import Review, review
from tests.benchmark.judging.review.fixture import ORG, SYSTEM, Log, as_text, records, system_description, write_package
from tests.benchmark.judging.review.official.watched_tools import watched

BEGIN = "open({canary!r}, 'w'); __import__('os').system('id'); __import__('socket').gethostbyname('localhost')"
"""Code of the rules that a log tries to have evaluated."""
OUT = "../" * 40
"""Way from any folder to the root."""


def with_rules(folder: Path) -> str:
    """Write rules with code under each name that a tool could form, and return the value that leads there."""
    rules = [{"BEGIN": {"CODE": BEGIN.format(canary=str(folder / "canary"))}}]
    for name in ("x_common.yaml", "x.yaml", "common.yaml", "x"):
        (folder / name).write_text(json.dumps(rules))
    return f"{OUT}{folder.relative_to('/')}/x"


def line_of(key: str, value: object, **fields: Any) -> str:
    metadata = {"file": "x.py", "lineno": 1, **fields}
    record = {"namespace": "", "time_ms": 1728500000000, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return f":::MLLOG {json.dumps({**record, 'metadata': metadata})}\n"


Spoil = Callable[[Log, str], str]
"""Change of a log, given the value that leads to the rules, to the text of the file."""


def setting(key: str, value: object = None, wrap: Callable[[str], object] = lambda lead: lead) -> Spoil:
    def spoil(log: Log, lead: str) -> str:
        log.set(key, wrap(lead) if value is None else value)
        return as_text(log.records)

    return spoil


def adding(text: Callable[[str], str], in_front: bool = False) -> Spoil:
    def spoil(log: Log, lead: str) -> str:
        return text(lead) + as_text(log.records) if in_front else as_text(log.records) + text(lead)

    return spoil


DIVISION, BENCHMARK = "submission_division", "submission_benchmark"
LOGS: dict[str, tuple[Spoil, str]] = {
    "division": (setting(DIVISION), "value.kind"),
    "division in a list": (setting(DIVISION, wrap=lambda lead: [lead]), "value.kind"),
    "division in an object": (setting(DIVISION, wrap=lambda lead: {"closed": lead}), "value.kind"),
    "division after a true word": (setting(DIVISION, wrap=lambda lead: f"closed/{lead}"), "value.kind"),
    "division with a NUL": (setting(DIVISION, wrap=lambda lead: f"{lead}\0"), "value.kind"),
    "division as a format string": (setting(DIVISION, "{0.__class__.__mro__}"), "value.kind"),
    "division as code": (setting(DIVISION, "')+__import__('os').system('id')+('"), "value.kind"),
    "division again, later": (adding(lambda lead: line_of(DIVISION, lead)), "value.kind"),
    "division before the true one": (adding(lambda lead: line_of(DIVISION, lead), True), "value.kind"),
    "division behind another record": (
        adding(lambda lead: line_of(DIVISION, "closed").rstrip() + line_of(DIVISION, lead)), "record.readable",
    ),
    "division behind a carriage return": (adding(lambda lead: "progress\r" + line_of(DIVISION, lead)), "value.kind"),
    "division in an escaped key": (
        adding(lambda lead: line_of(DIVISION, lead).replace("division", "divi\\u0073ion")), "value.kind",
    ),
    "division by a repeated field": (
        adding(lambda lead: line_of(DIVISION, lead).replace('"value":', '"value": "closed", "value":')), "value.kind",
    ),
    "benchmark": (setting(BENCHMARK), "value.benchmark"),
    "benchmark as a folder": (setting(BENCHMARK, wrap=lambda lead: f"gpt3/{lead}"), "value.benchmark"),
    "benchmark again, later": (adding(lambda lead: line_of(BENCHMARK, lead)), "key.once"),
    "benchmark as a number": (setting(BENCHMARK, 7), "value.benchmark"),
    "both": (lambda log, lead: setting(DIVISION)(log, lead) + line_of(BENCHMARK, lead), "value.kind"),
}  # fmt: skip
"""Logs on which no tool may run, and the rule of ours that finds why."""
UNREAD: dict[str, Spoil] = {
    "status of the stop": lambda log, lead: (log.metadata("run_stop", status=lead), as_text(log.records))[1],
    "org": setting("submission_org"),
    "platform": setting("submission_platform"),
    "platform of 900 kB": setting("submission_platform", "x" * 900_000),
    "org as a format string": setting("submission_org", "%s%n{0}{0.__init__.__globals__}"),
    "file of the seed": lambda log, lead: (log.metadata("seed", file=lead), as_text(log.records))[1],
    "file of rules": adding(lambda lead: line_of("config_filename", lead)),
    "batch size as a text": setting("global_batch_size", "9" * 4000),
    "batch size of 4,000 digits": setting("global_batch_size", 10**4000),
    "value of an evaluation as code": setting("eval_accuracy", "__import__('os').system('id')"),
    "deep nesting": adding(lambda lead: ":::MLLOG " + "[" * 200_000 + "\n"),
    "a wide object": setting("opt_name", {str(n): [n] * 50 for n in range(2000)}),
}
"""Logs with values that the tools take as data."""


def write_logs(folder: Path) -> dict[str, Path]:
    lead = with_rules(folder)
    paths = {}
    for number, (name, spoil) in enumerate({**{n: s for n, (s, _) in LOGS.items()}, **UNREAD}.items()):
        paths[name] = folder / f"run_{number}" / "result_0.txt"
        paths[name].parent.mkdir()
        paths[name].write_bytes(spoil(Log(records(1)), lead).encode("latin-1", "replace"))
    return paths


@pytest.mark.parametrize("sandbox", [True, False])
def test_no_value_of_a_log_reaches_out(sandbox: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write_logs(tmp_path)
    with watched(monkeypatch, tmp_path / "events", sandbox) as events:
        found = review(list(paths.values()), "4.1.0")
    assert events == []
    assert not (tmp_path / "canary").exists()
    assert_told(found, paths)


def assert_told(found: Review, paths: dict[str, Path]) -> None:
    """Each log with a value outside the closed lists has an error of ours, and the tool was not run on it."""
    checks = {check.subject: check for one in found.subjects for check in one.checks if check.tool == "compliance"}
    errors = [
        (one.rule, place) for each in found.subjects for one in each.of("error") for place in (one.location, *one.also)
    ]
    for name, (_, rule) in LOGS.items():
        check = checks[str(paths[name])]
        assert check.outcome == "did not run", name
        assert check.complaints[0].startswith(f"not run, because {paths[name]}:"), (name, check.complaints)
        assert any(error == rule and place.startswith(f"{paths[name]}:") for error, place in errors), name
    for name in UNREAD:
        check = checks[str(paths[name])]
        assert check.outcome in ("passed", "failed") or "the tool crashed: TypeError" in check.complaints[0], name


def renamed_system(name: str) -> Callable[[Path, str], object]:
    def change(package: Path, lead: str) -> None:
        (package / "results" / SYSTEM).rename(package / "results" / name)
        (package / "systems" / f"{SYSTEM}.json").rename(package / "systems" / f"{name}.json")

    return change


def described(**fields: object) -> Callable[[Path, str], object]:
    def change(package: Path, lead: str) -> None:
        values = {name: lead if value is None else value for name, value in fields.items()}
        (package / "systems" / f"{SYSTEM}.json").write_text(json.dumps({**system_description(), **values}))

    return change


def written(path: str, content: str = "{lead}") -> Callable[[Path, str], object]:
    def change(package: Path, lead: str) -> None:
        place = package / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content.replace("{lead}", lead))

    return change


RESULTS = f"results/{SYSTEM}/gpt3"
PACKAGES: dict[str, Callable[[Path, str], object]] = {
    "division of one log": lambda package, lead: (package / RESULTS / "result_1.txt").write_text(
        setting(DIVISION)(Log(records(20402)), lead)
    ),
    "system as a pattern": renamed_system("[a-z]*"),
    "system as braces": renamed_system("{a,b}"),
    "system as an option": renamed_system("--csv=x"),
    "system as a command": renamed_system("$(id)"),
    "system of dots": renamed_system("..."),
    "system with a line break": renamed_system("a\nb"),
    "package as braces": lambda package, lead: package.rename(package.with_name("{*}")),
    "package as an option": lambda package, lead: package.rename(package.with_name("-xlsx")),
    "description: division": described(division=None),
    "description: submitter and name": described(submitter=None, system_name="{0.__class__}"),
    "description: status": described(status=None, framework="TensorFlow commit hash = " * 1000),
    "description: numbers": described(number_of_nodes="9" * 5000, accelerators_per_node=[]),
    "description in a description": written(f"systems/{SYSTEM}.json", '{"a":' * 50_000),
    "factor": written(f"{RESULTS}/scaling.json", '{"scaling_factor": "{lead}"}'),
    "private name": written(f"results/{SYSTEM}/privateid.json", '{"private_id": "{lead}"}'),
    "parameters": written(f"{RESULTS}/package_checker_params", "--config {lead}"),
    "power of a command": written(f"{RESULTS}/power/result_0/node_$(id).txt"),
    "power": written(f"{RESULTS}/power/result_0/node_0.txt", line_of("power_reading", "{lead}")),
    "modules": lambda package, lead: [
        written(f"{name}", "import os; os.system('id')")(package, lead)
        for name in ("yaml.py", "sitecustomize.py", f"{RESULTS}/json.py", "mlperf_logging/__init__.py")
    ],
    "rules": written("results/training_4.1.0/closed_common.yaml", '[{"BEGIN": {"CODE": "exit(7)"}}]'),
    "log behind a link": lambda package, lead: _linked(package / RESULTS / "result_2.txt", "/etc/passwd"),
    "folder behind a link": lambda package, lead: _linked(package / "results" / "other", "/etc"),
    "description behind a link": lambda package, lead: _linked(package / f"systems/{SYSTEM}.json", "/etc/passwd"),
    "pipe": lambda package, lead: os.mkfifo(package / RESULTS / "result_9.txt"),
}
"""Packages by what is hostile in them."""


def _linked(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


@pytest.mark.slow
def test_no_name_or_content_of_a_package_reaches_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the sandbox, which refuses at most more."""
    lead, folders = with_rules(tmp_path), []
    for number, change in enumerate(PACKAGES.values()):
        change(write_package(tmp_path / f"{number}"), lead)
        folders += [path for path in (tmp_path / f"{number}").iterdir() if path.is_dir()]
    before = sorted(path for path in tmp_path.rglob("*"))
    with watched(monkeypatch, tmp_path / "events", sandbox=False) as events:
        found = review(folders, "4.1.0")
    assert events == []
    assert sorted(path for path in tmp_path.rglob("*") if path.name != "events") == before
    assert len(found.subjects) == len(PACKAGES)
    first = next(one for one in found.subjects if one.path == str(tmp_path / "0" / ORG))
    outcomes = {check.tool: check.complaints[:1] for check in first.checks if check.tool in ("package", "summarizer")}
    reason = f"{tmp_path}/0/{ORG}/{RESULTS}/result_1.txt:"
    assert all(words[0].startswith(f"not run, because {reason}") for words in outcomes.values()), outcomes


ATTEMPTS = {
    "open": "open('/etc/hostname').read()",
    "write": "open({out!r}, 'w')",
    "list": "__import__('os').listdir('/root')",
    "remove": "__import__('os').remove({target!r})",
    "shell": "assert __import__('os').system('id') == 0",
    "program": "__import__('subprocess').run(['id'])",
    "fork": "__import__('os').fork()",
    "exec": "__import__('os').execv('/usr/bin/id', ['id'])",
    "spawn": "__import__('os').posix_spawn('/usr/bin/id', ['id'], {{}})",
    "name": "__import__('socket').getaddrinfo('localhost', 80)",
    "connection": "__import__('socket').create_connection(('127.0.0.1', 1))",
    "pair": "__import__('socket').socketpair()",
    "signal": "__import__('os').kill(__import__('os').getppid(), 9)",
    "link": "__import__('os').link({target!r}, 'link')",
    "device": "__import__('os').mknod({out!r})",
    "environment": "__import__('os').environ['SECRET_TOKEN']",
}
"""Code that a tool could be made to evaluate, each of which the sandbox must refuse."""

UNHEARD = ("environment", "pair", "device")
"""Attempts of which Python tells no audit hook."""


@pytest.fixture(scope="module")
def closed_tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ToolProcess, Path]]:
    """The process of the tools with its sandbox, and the oracle's file."""
    events = tmp_path_factory.mktemp("oracle") / "events"
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("SECRET_TOKEN", "secret")
        with watched(monkeypatch, events, sandbox=True), tool_process() as tools:
            if "this system cannot close" in tools.sandbox:
                pytest.skip(tools.sandbox)
            yield tools, events


@pytest.mark.parametrize("name", ATTEMPTS)
def test_the_sandbox_refuses_and_the_oracle_notices(
    name: str, closed_tools: tuple[ToolProcess, Path], tmp_path: Path
) -> None:
    (tools, events), target = closed_tools, tmp_path / "target"
    target.write_text("content")
    noticed_before = events.stat().st_size
    folder = SubjectCopies(tools.scratch / name).folder
    folder.mkdir()
    script = folder / "script.py"
    script.write_text(ATTEMPTS[name].format(out=str(tmp_path / "out"), target=str(target)))
    ran = tools.run(str(script), "json", (), folder, 1)
    assert ran.status != 0, ran.output
    assert events.stat().st_size > noticed_before or name in UNHEARD, "the oracle saw nothing"
    assert target.read_text() == "content"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
