"""The package of a rehearsal, of made-up runs, which are fixtures and no results."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmark.config.benchmarks import REHEARSAL
from benchmark.config.description_fields import marked_fields
from benchmark.config.run_config import RunConfig
from benchmark.config.systems import SYSTEMS
from benchmark.judging.submission.package import make_package
from benchmark.planning.machine.describe_system import describe_this_machine
from benchmark.rehearsal.rehearsal_package import finished_runs, rehearse_package
from benchmark.training.same_run import as_json
from foundation.errors import InputError
from foundation.git import commit_of
from tests.benchmark.judging.review.fixture import ORG, SOURCE, MadeUp, as_text, records_of
from tests.support import assert_refused, command_here


def rehearsal_curve(_: int, evaluations: int, noise: random.Random) -> Iterator[float]:
    """A power law down to the target."""
    for number in range(1, evaluations):
        yield max(2.4405, 2.0 + 0.45 * (evaluations / number) ** 0.8 + noise.gauss(0, 2e-3))
    yield 2.43 + noise.uniform(0, 5e-3)


MADE = MadeUp(REHEARSAL, SYSTEMS["cpu_p2"], "cpu_p2", rehearsal_curve, 13, 1_900, 150, (90210, 31337, 4711))


def write_runs(work_dir: Path, commit: str | None) -> None:
    for number, seed in enumerate(MADE.seeds):
        run = work_dir / f"run_{number}"
        run.mkdir(parents=True)
        (run / f"result_{number}.txt").write_text(as_text(records_of(MADE, seed)))
        config = RunConfig(MADE.benchmark, MADE.system, run_dir=run, result_number=number)
        (run / "config.json").write_text(json.dumps(as_json(config)))
        (run / "summary.json").write_text(json.dumps({"status": "success"}))
        note = {"time_ms": 1, "key": "environment", "value": {"commit": commit, "torch": "2.13.0"}}
        (run / "events.jsonl").write_text(json.dumps(note) + "\n")


@pytest.mark.slow
def test_finished_runs_become_a_package_that_the_official_tools_accept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_runs(tmp_path, commit_of())
    assert rehearse_package(REHEARSAL, tmp_path, describe_this_machine) == 0
    text = capsys.readouterr().out
    assert "=== rehearsal of a submission: acceptable ===" in text
    assert "compliance, seed, system description, repository passed, ruleset 4.1.0" in text
    assert "not for a rehearsal: package, summarizer, RCP" in text
    assert "next step       the same with gpt3: its data, 3 runs" in text
    package = tmp_path / "package_0"
    logs = sorted((package / "results" / "cpu_p2" / "gpt3_rehearsal").iterdir())
    assert [log.read_bytes() for log in logs] == [(tmp_path / f"run_{n}/result_{n}.txt").read_bytes() for n in range(3)]
    description = json.loads((package / "systems" / "cpu_p2.json").read_text())
    assert marked_fields(description) == []
    assert (description["submitter"], description["accelerators_per_node"]) == (ORG, "2")
    code = package / "benchmarks" / "gpt3_rehearsal" / "implementations"
    assert (code / "pytorch" / SOURCE).is_file()
    assert 'rehearse rehearsal --work-dir "$C4"' in (code / "cpu_p2" / "init_datasets.sh").read_text()
    assert_refused_elsewhere(tmp_path, package)


def assert_refused_elsewhere(work_dir: Path, package: Path) -> None:
    """The commands package and review refuse a rehearsal, whose package is no submission."""
    runs = [work_dir / f"run_{number}" for number in range(3)]
    with pytest.raises(InputError, match="'gpt3_rehearsal', but only runs of gpt3 and llama31_8b make a submission"):
        make_package(ORG, work_dir / "cpu_p2.json", runs, work_dir / "package_1")
    done = command_here("benchmark", "review", str(package))
    assert done.returncode == 1 and "package, ruleset 4.1.0: 1 error" in done.stdout
    words = " ".join(done.stdout.split())
    assert "results of gpt3_rehearsal: the package of a rehearsal, which is no submission" in words


def test_a_package_that_the_review_refuses_says_why_and_what_comes_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_runs(tmp_path, commit_of())
    log = tmp_path / "run_1" / "result_1.txt"
    log.write_bytes((tmp_path / "run_0" / "result_0.txt").read_bytes())
    assert rehearse_package(REHEARSAL, tmp_path, describe_this_machine) == 1
    text = capsys.readouterr().out
    assert f"rejected ===\n  {log}: the same log as" in text
    assert "next step: mend it" in text
    assert not (tmp_path / "package_0").exists()


def test_runs_of_another_commit_do_not_count(tmp_path: Path) -> None:
    write_runs(tmp_path, "0" * 40)
    assert finished_runs(tmp_path, "bf16") == []
    (tmp_path / "run_2" / "events.jsonl").write_text("")
    assert [run.path.name for run in finished_runs(tmp_path, "bf16")] == ["result_2.txt"]


def test_seed_and_other_text_are_refused() -> None:
    done = command_here("benchmark", "rehearse", "--package", "--seed", "1")
    assert_refused(done, "--package: other text has no target, and seeds must differ")
