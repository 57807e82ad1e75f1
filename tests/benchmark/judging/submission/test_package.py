"""Packages of made-up results, which are fixtures and no results, and of published ones."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmark.config.description_fields import MARK
from benchmark.config.run_config import RunConfig
from benchmark.config.system_config import read_system
from benchmark.judging.results.recorded_run import read_recorded_run
from benchmark.judging.submission import package
from benchmark.judging.submission.package import make_package
from benchmark.judging.submission.package_inputs import require_same_submitter
from benchmark.training.same_run import as_json
from foundation.errors import InputError
from foundation.git import commit_of
from tests.benchmark.judging.report.made_pages import own_review_of
from tests.benchmark.judging.review.fixture import (
    GPT3_MADE,
    LLAMA_N1,
    LLAMA_N8,
    ORG,
    SYSTEM,
    MadeUp,
    Record,
    as_text,
    made_up,
    records_of,
    system_description,
)
from tests.benchmark.judging.review.reviews import check_file
from tests.support import REPOSITORY, command

PUBLISHED = REPOSITORY.parent / "shared" / "real_logs" / "v4.1"
CODE = f"benchmarks/gpt3/implementations/{SYSTEM}"


def write_inputs(
    folder: Path, change: Callable[[list[Record]], None] = lambda _: None, made: MadeUp = GPT3_MADE
) -> list[str]:
    """Run folders and a system description; returns the options of ``package`` that name them."""
    (folder / f"{made.name}.json").write_text(json.dumps(system_description(made)))
    runs = []
    for number, seed in enumerate(made.seeds):
        run = folder / f"run_{number}"
        run.mkdir()
        log = records_of(made, seed)
        change(log)
        (run / f"result_{number}.txt").write_text(as_text(log))
        config = RunConfig(made.benchmark, made.system, run_dir=run, result_number=number)
        (run / "config.json").write_text(json.dumps(as_json(config)))
        stamp(run, "5" * 32, commit_of())
        runs.append(str(run))
    return ["--org", ORG, "--system-json", str(folder / f"{made.name}.json"), "--results", *runs]


def stamp(run: Path, md5: str, commit: str | None) -> None:
    entry = {"manifest": str(run.parent / "data.manifest.json"), "md5": {"data.bin": md5}}
    notes = {"environment": {"commit": commit, "torch": "2.13.0"}, "inputs": {"/c4/data": entry}}
    lines = [json.dumps({"time_ms": 1, "key": key, "value": value}) for key, value in notes.items()]
    (run / "events.jsonl").write_text("\n".join(lines) + "\n")
    (run / "manifests").mkdir(exist_ok=True)
    (run / "manifests" / "data.manifest.json").write_text('{"stage": "preprocess"}')


def refused(folder: Path, options: list[str], *phrases: str) -> None:
    """The same in this process, for what is refused before anything is made."""
    with pytest.raises(InputError) as caught:
        make_package(options[1], Path(options[3]), [Path(path) for path in options[5:]], folder / "package" / ORG)
    for phrase in phrases:
        assert phrase in str(caught.value)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> "subprocess.CompletedProcess[str]":
    folder = tmp_path_factory.mktemp("package")
    return command("benchmark", "package", *write_inputs(folder), "--output", folder / "package" / ORG)


@pytest.fixture(scope="module")
def made(done: "subprocess.CompletedProcess[str]") -> Path:
    assert done.returncode == 0, done.stderr
    return Path(done.args[-1])


@pytest.mark.slow
def test_package_passes_every_official_checker_and_holds_all(
    done: "subprocess.CompletedProcess[str]", made: Path
) -> None:
    tools = "summarizer, package, repository"
    first, *rest = done.stdout.splitlines()
    assert first.startswith(f"{made}: ")
    assert first.endswith(f" files; review passed: 3 official checks ({tools}), ruleset 4.1.0")
    assert not [line for line in rest if "warning" in line]
    inputs = made.parents[1]
    for number in range(3):
        copied = made / "results" / SYSTEM / "gpt3" / f"result_{number}.txt"
        assert copied.read_bytes() == (inputs / f"run_{number}" / f"result_{number}.txt").read_bytes()
    assert json.loads((made / "systems" / f"{SYSTEM}.json").read_text()) == system_description()
    here = made / CODE
    names = {f"{SYSTEM}_pytorch.json", "README.md", "setup.sh", "init_datasets.sh", "run_and_time.sh", "manifests"}
    assert {path.name for path in here.iterdir()} == names | {"configs", "dgxh100_n64.toml"}
    config = json.loads((here / "configs" / "result_2" / "config.json").read_text())
    trained = json.loads((inputs / "run_2" / "config.json").read_text())
    for name in ("benchmark", "system", "precision", "data", "result_number"):
        assert config[name] == trained[name]
    manifests = {path.name for path in (here / "manifests").iterdir()}
    assert manifests == {"data.manifest.json", *(f"inputs_of_result_{number}.json" for number in range(3))}
    readme = (here / "README.md").read_text()
    for text in ("| global batch size | 2048 |", "| learning rate | 2e-05 |", "| micro batch size | 2 |", "1001"):
        assert text in readme
    assert str(commit_of()) in readme
    assert "| torch | 2.13.0 |" in readme
    assert not list(made.parent.glob("*.partial"))


@pytest.mark.slow
def test_packaged_code_runs_and_scripts_ask_for_such_a_run(made: Path, tmp_path: Path) -> None:
    code = made / CODE / ".." / "pytorch"
    words = [sys.executable, "-m", "benchmark", "schedule", "gpt3_175b", "--global-batch-size", "2048", "--json"]
    done = subprocess.run(words, cwd=code, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["eval_interval"] == 12
    assert (code / "requirements.lock").read_bytes() == (REPOSITORY / "requirements.lock").read_bytes()
    assert not (code / "tests").exists()
    for script in ("setup.sh", "init_datasets.sh", "run_and_time.sh"):
        subprocess.run(["bash", "-n", made / CODE / script], check=True)
    first, variables = asked(made / CODE, tmp_path)
    code = (made / CODE / ".." / "pytorch").resolve()
    assert first == f"{code} --nodes=64 --ntasks-per-node=8 run_gpt3.sh {tmp_path}/logs - none"
    expected = {"BENCHMARK=gpt3_175b", "GBS=2048", "LR=2e-05", "MIN_LR=2e-06", "USE_BF16=true"}
    expected |= {"COM_DIR=/c4/preprocessed_c4_spm", "EXTERNAL_MODEL_CHECKPOINT_DIR=/c4/ckpt4000_bf16"}
    system = tmp_path / "logs" / "dgxh100_n64.toml"
    assert expected | {f"TRAIN_OPTIONS=--submission-org={ORG}", f"SYSTEM={system}"} <= variables
    assert read_system(system) == GPT3_MADE.system


def asked(implementation: Path, folder: Path) -> tuple[str, set[str]]:
    """What its run_and_time.sh gives to sbatch, called in ``folder``: folder and words, and variables."""
    sbatch = folder / "sbatch"
    sbatch.write_text('#!/bin/sh\necho "$PWD" "$@"\nenv\n')
    sbatch.chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "C4": "/c4"}
    words = ["bash", str(implementation / "run_and_time.sh"), "logs"]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    first, *variables = done.stdout.splitlines()
    return first, set(variables)


@pytest.mark.slow
def test_ten_runs_of_llama_make_a_package_that_three_rulesets_accept(tmp_path: Path) -> None:
    options = write_inputs(tmp_path, made=LLAMA_N1)
    output = tmp_path / "package" / ORG
    _, text = make_package(ORG, Path(options[3]), [Path(path) for path in options[5:]], output)
    first, *rest = text.splitlines()
    assert first.endswith("review passed: 3 official checks (summarizer, package, repository), ruleset 6.1.0")
    assert not [line for line in rest if "warning" in line]
    here = output / "benchmarks" / "llama31_8b" / "implementations" / LLAMA_N1.name
    _, variables = asked(here, tmp_path)
    expected = {"BENCHMARK=llama31_8b", "GBS=32", "LR=0.0008", "MIN_LR=8e-05", "COM_DIR=/c4/preprocessed_c4_llama31"}
    assert expected | {f"TRAIN_OPTIONS=--submission-org={ORG} --lr-warmup-samples=4096"} <= variables
    assert read_system(tmp_path / "logs" / "dgxh100_n1.toml") == LLAMA_N1.system
    assert not [one for one in variables if one.startswith("EXTERNAL_")]
    assert "checkpoint" not in (here / "init_datasets.sh").read_text()
    assert "Llama 3.1 8B on" in (here / "README.md").read_text()
    log = next(made_up(LLAMA_N8).write(tmp_path / "eight_nodes" / ORG).rglob("result_0.txt"))
    assert [check_file(log, ruleset).outcome for ruleset in ("5.1.0", "6.0.0")] == ["passed"] * 2


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="../shared/real_logs is not there")
def test_published_results_make_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "review_of", own_review_of)
    org, name = "Google", "cloud-tpu-trillium-1024-maxtext"
    folder = PUBLISHED / org
    results = sorted((folder / "results" / name / "gpt3").glob("result_*.txt"))
    options = (org, folder / "systems" / f"{name}.json", results, tmp_path / org)
    with pytest.raises(InputError, match=r"which is no file of the code .* --other-code"):
        make_package(*options)
    with pytest.raises(InputError, match="give --precision bf16 or fp32 or fp8 for logs alone"):
        make_package(*options, other_code=True)
    _, told = make_package(*options, other_code=True, precision="bf16")
    assert "note: no manifests of data and checkpoint" in told
    assert "note: the code packaged did not make these results" in told
    assert (tmp_path / org / "results" / name / "gpt3" / "result_0.txt").read_bytes() == results[0].read_bytes()


def set_value(key: str, value: Any) -> Callable[[list[Record]], None]:
    def change(log: list[Record]) -> None:
        for record in log:
            if record["key"] == key:
                record["value"] = value

    return change


def test_what_review_refuses_is_refused_in_a_line_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(package, "review_of", own_review_of)
    options = write_inputs(tmp_path, set_value("opt_base_learning_rate", 3e-5))
    description = tmp_path / f"{SYSTEM}.json"
    description.write_text(json.dumps(system_description() | {"status": "onprem"}, indent=1))
    refused(tmp_path, options, "no package is made: review refuses it for the ")
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("error: ") for line in lines)
    first, *others = (str(tmp_path / f"run_{number}" / f"result_{number}.txt:15") for number in range(3))
    found = f"{first}: opt_base_learning_rate 3e-05; expected 2e-05 at batch size 2048; train with that"
    (line,) = [line for line in lines if found in line]
    assert line.endswith(f"(also in {', '.join(others)})")
    assert any(f"{description}:4: status 'onprem'; expected Available on-premise" in line for line in lines)
    assert list((tmp_path / "package").iterdir()) == []


def test_wrong_description_is_refused_by_its_own_name(tmp_path: Path) -> None:
    options = write_inputs(tmp_path)
    path = tmp_path / f"{SYSTEM}.json"
    path.write_text(json.dumps(system_description() | {"cooling": f"{MARK}air or liquid"}))
    refused(tmp_path, options, f"{path}: 1 fields are still to be filled in by hand: cooling")
    path.write_text(json.dumps(system_description() | {"other_software_stack": {"cuda": [f"{MARK}version"]}}))
    refused(tmp_path, options, f"{path}: 1 fields are still to be filled in by hand: other_software_stack.cuda.0")
    path.unlink()
    os.mkfifo(path)
    refused(tmp_path, options, f"{path}: pipe, not a regular file")
    path.unlink()
    path.write_text("[" * 100_000)
    refused(tmp_path, options, f"{path}: not JSON")
    path.write_text("{")
    refused(tmp_path, options, f"{path}: not JSON", "describe-system")
    spaced = path.rename(tmp_path / "my system.json")
    options[options.index(str(path))] = str(spaced)
    refused(tmp_path, options, f"{spaced}: its name becomes that of the system", "rename it")


def test_results_that_are_no_result_are_refused(tmp_path: Path) -> None:
    options = write_inputs(tmp_path)
    runs = options[-3:]
    rest = options[:-3]
    for count in (0, 2):
        due = f"--results: {count} runs given, but a submission has 3 of gpt3, or 10 of llama31_8b"
        refused(tmp_path, [*rest, *runs[:count]], due)
    refused(tmp_path, [*rest, *runs[:2], runs[0]], "the same log as", "give different runs")
    (tmp_path / "empty").mkdir()
    refused(tmp_path, [*rest, *runs[:2], str(tmp_path / "empty")], "one result_*.txt, not 0 of them")
    log = tmp_path / "run_2" / "result_2.txt"
    log.write_text(log.read_text().replace('"value": "gpt3"', '"value": "gpt3_rehearsal"'))
    refused(tmp_path, options, "a run of 'gpt3_rehearsal', but only runs of gpt3 and llama31_8b make")
    log.write_text(as_text(records_of(LLAMA_N1, 1)))
    refused(tmp_path, options, f"{log}: a run of llama31_8b, but {runs[0]}/result_0.txt is one of gpt3; package each")
    log.write_text("nothing\n")
    refused(tmp_path, options, f"{log}: no MLLOG record in it")


def test_org_that_contradicts_log_or_description_is_refused(tmp_path: Path) -> None:
    options = write_inputs(tmp_path)
    description = tmp_path / f"{SYSTEM}.json"
    other = [word if word != ORG else "Umbrella" for word in options]
    refused(tmp_path, other, f"{description}: submitter 'ACME', but --org Umbrella; write it there")
    description.write_text(json.dumps(system_description() | {"submitter": "Umbrella Corp."}))
    refused(tmp_path, other, f"{tmp_path}/run_0/result_0.txt:4: submission_org 'ACME', but --org Umbrella")
    description.write_text(json.dumps(system_description() | {"submitter": 5}))
    refused(tmp_path, options, "submitter 5, but --org ACME")
    description.write_text(json.dumps(system_description() | {"submitter": "A"}))
    refused(tmp_path, options, "submitter 'A', but --org ACME")
    for name in ("acme", "ACME, Inc.", "The Acme-Company"):  # longer forms of a name are no other submitter
        require_same_submitter("ACME", description, {"submitter": name}, [read_recorded_run(tmp_path / "run_0")])
