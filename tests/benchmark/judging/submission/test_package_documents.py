"""README and scripts of a package; that the scripts run is in test_package.py."""

import dataclasses
import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from benchmark.config.benchmarks import GPT3_175B, LLAMA31_8B
from benchmark.config.number_formats import Precision
from benchmark.config.system_config import read_system
from benchmark.judging.results.judged import GPT3
from benchmark.judging.results.recorded_run import RecordedRun, read_recorded_run
from benchmark.judging.submission.package_documents import PUBLISHED_DATA, Contents, claims_of, write_documents
from benchmark.training.same_run import as_json
from foundation.errors import InputError
from tests.benchmark.judging.review.fixture import GPT3_MADE, Log, records, system_description, write_run

CLAIMS = {claim.topic: claim.sentence for claim in claims_of(GPT3_175B, [])}
HOSTILE = "$(touch /tmp/x) `id` | <b>\n# x"


def run_of(folder: Path, config: dict[str, Any] | None = None, **values: object) -> RecordedRun:
    log = Log(records(1))
    for key, value in values.items():
        log.set(key, value)
    path = write_run(folder, log.records)
    if config is not None:
        (folder / "config.json").write_text(json.dumps({"result_number": 0, **config}))
    return read_recorded_run(path)


def documents(
    folder: Path,
    run: RecordedRun,
    org: str = "ACME",
    precision: Precision = "bf16",
    other_code: bool = False,
    **fields: object,
) -> dict[str, str]:
    folder.mkdir()
    description = {**system_description(), **fields}
    contents = Contents(org, GPT3_175B, GPT3, "pytorch", "c0ffee", description, [run], precision, other_code)
    write_documents(folder, contents, [])
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_documents_of_a_log_alone(tmp_path: Path) -> None:
    found = documents(tmp_path / "to", run_of(tmp_path / "run"))
    assert set(found) == {"README.md", "setup.sh", "init_datasets.sh", "run_and_time.sh"}
    assert {name for name in found if os.access(tmp_path / "to" / name, os.X_OK)} == set(found) - {"README.md"}
    last = run_of(tmp_path / "run").summary.evaluations[-1].log_perplexity
    assert f"| result_0.txt | 1 | 52.00 | 1,207,959,552 | 24 | {last:.5f} |" in found["README.md"]
    assert "The results came without the folders of their runs" in found["README.md"]
    assert 'ckpt4000_bf16" --dtype' in found["init_datasets.sh"]
    assert "sbatch --nodes=64 --ntasks-per-node=8 run_gpt3.sh" in found["run_and_time.sh"]
    assert "export SYSTEM" not in found["run_and_time.sh"]


def stamped(changed: dict[str, str] | None = None) -> dict[str, Any]:
    return {"/c4/data": {"md5": {**PUBLISHED_DATA, **(changed or {})}}, "/c4/checkpoint": {"md5": {"checkpoint": "5"}}}


def with_inputs(folder: Path, inputs: dict[str, Any]) -> RecordedRun:
    run = run_of(folder, {})
    (folder / "events.jsonl").write_text(json.dumps({"time_ms": 1, "key": "inputs", "value": inputs}) + "\n")
    return read_recorded_run(run.path)


def test_readme_says_what_digests_support_and_names_what_they_do_not(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], list[str]]] = [
        (stamped(), []),
        (stamped({"c4_en_7_c4_spm_text_document.bin": "6"}), ["the training data"]),
        ({"/c4/checkpoint": None}, list(CLAIMS)),
    ]
    for number, (inputs, untold) in enumerate(cases):
        readme = documents(tmp_path / f"to_{number}", with_inputs(tmp_path / f"{number}", inputs))["README.md"]
        assert [topic for topic, text in CLAIMS.items() if text not in readme] == untold
        assert (f"manifests of these runs tell: {', '.join(untold)}." in readme) is bool(untold)
    names = ["c4-train.en_6_text_document.bin", "c4-train.en_6_text_document.idx"]
    run = with_inputs(tmp_path / "llama", {"/c4/train": {"md5": dict.fromkeys(names, "6")}})
    training, validation = claims_of(LLAMA31_8B, [run])
    assert (training.supported, validation.supported) == (True, False)
    assert training.sentence == f"Training data: {names[0]}, named by their digests in `manifests/`."  # none are public


def test_precision_other_code_and_the_users_own_system_are_told(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run")
    found = documents(tmp_path / "of_others", run, precision="fp32", other_code=True)
    assert "ckpt4000_fp32" in found["init_datasets.sh"]
    assert "export USE_BF16=false" in found["run_and_time.sh"]
    assert "Other code made these results" in found["README.md"]
    found = documents(tmp_path / "in_fp8", run, precision="fp8")
    assert "ckpt4000_bf16" in found["init_datasets.sh"]
    assert "export PRECISION=fp8" in found["run_and_time.sh"]
    assert "USE_BF16" not in found["run_and_time.sh"]
    system = dataclasses.replace(GPT3_MADE.system, name="racks 1.2", nodes=9, tensor_parallel=1, platform='a "b"')
    found = documents(tmp_path / "to", run_of(tmp_path / "run", {"system": as_json(system)}))
    assert "export SYSTEM=$LOG_DIR/racks_1_2.toml\n" in found["run_and_time.sh"]
    assert read_system(tmp_path / "to" / "racks_1_2.toml") == dataclasses.replace(system, name="racks_1_2")
    with pytest.raises(InputError, match=r"config\.json: no system in it .*; package with the version that made"):
        documents(tmp_path / "other", run_of(tmp_path / "run", {"system": {"name": "x"}}))


def test_warm_up_is_an_option_where_it_is_not_the_usual(tmp_path: Path) -> None:
    """By the configuration, or else by the steps in the log."""
    samples = GPT3_175B.optimizer.lr_warmup_samples
    configured = {"benchmark": {"optimizer": {"lr_warmup_samples": samples + 1}}}
    for name, config, steps, due in (
        ("a", None, 199, ""),
        ("b", None, 200, " --lr-warmup-samples=409600"),
        ("c", configured, 199, f" --lr-warmup-samples={samples + 1}"),
    ):
        run = run_of(tmp_path / name, config, opt_learning_rate_warmup_steps=steps)
        script = documents(tmp_path / f"to_{name}", run)["run_and_time.sh"]
        options = next(line for line in script.splitlines() if "TRAIN_OPTIONS" in line)
        assert options.replace("'", "") == f"export TRAIN_OPTIONS=--submission-org=ACME{due}"


def test_strangers_texts_stay_text(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run")
    found = documents(tmp_path / "to", run, HOSTILE, system_name=HOSTILE, number_of_nodes=HOSTILE)
    assert found["setup.sh"].splitlines()[1].startswith("# The environment of $(touch /tmp/x)")
    assert found["setup.sh"].splitlines()[2].startswith("set -euo")
    assert f"export TRAIN_OPTIONS={shlex.quote(f'--submission-org={HOSTILE}')}" in found["run_and_time.sh"]
    assert shlex.quote(f"--nodes={HOSTILE}") in found["run_and_time.sh"]
    assert found["README.md"].splitlines()[0] == (
        r"# $(touch /tmp/x) \`id\` \| \<b\> \# x: GPT-3 175B on $(touch /tmp/x) \`id\` \| \<b\> \# x"
    )
