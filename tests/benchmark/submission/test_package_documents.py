"""README and scripts of a package; that the scripts run is in test_package.py."""

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from benchmark.results.recorded_run import RecordedRun, read_recorded_run
from benchmark.submission.package_documents import CLAIMS, PUBLISHED_DATA, Contents, write_documents
from tests.benchmark.review.damage import Log
from tests.benchmark.review.fixture import records, system_description, write_run

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
    precision: str = "bf16",
    other_code: bool = False,
    **fields: object,
) -> dict[str, str]:
    folder.mkdir()
    description = {**system_description(), **fields}
    write_documents(folder, Contents(org, "pytorch", "c0ffee", description, [run], precision, other_code), [])
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_documents_of_a_log_alone(tmp_path: Path) -> None:
    found = documents(tmp_path / "to", run_of(tmp_path / "run"))
    assert set(found) == {"README.md", "setup.sh", "init_datasets.sh", "run_and_time.sh"}
    assert {name for name in found if os.access(tmp_path / "to" / name, os.X_OK)} == set(found) - {"README.md"}
    last = run_of(tmp_path / "run").summary.evaluations[-1].log_perplexity
    assert f"| result_0.txt | 1 | 52.00 | 1,207,959,552 | 24 | {last:.5f} |" in found["README.md"]
    assert "The results came without the folders of their runs" in found["README.md"]
    assert 'ckpt4000_bf16"' in found["init_datasets.sh"]
    assert "sbatch --nodes=64 --ntasks-per-node=8 run_gpt3.sh" in found["run_and_time.sh"]
    assert "export SYSTEM" not in found["run_and_time.sh"]


def stamped(changed: dict[str, str] | None = None) -> dict[str, Any]:
    return {"/c4/data": {"md5": {**PUBLISHED_DATA, **(changed or {})}}, "/c4/checkpoint": {"md5": {"checkpoint": "5"}}}


@pytest.mark.parametrize(
    ("inputs", "untold"),
    [
        (stamped(), []),
        (stamped({"c4_en_7_c4_spm_text_document.bin": "6"}), ["the training data"]),
        ({"/c4/checkpoint": None}, list(CLAIMS)),
    ],
)
def test_readme_says_what_digests_support_and_names_what_they_do_not(
    inputs: dict[str, Any], untold: list[str], tmp_path: Path
) -> None:
    run = run_of(tmp_path / "run", {})
    (tmp_path / "run" / "events.jsonl").write_text(json.dumps({"time_ms": 1, "key": "inputs", "value": inputs}) + "\n")
    readme = documents(tmp_path / "to", read_recorded_run(run.path))["README.md"]
    assert [topic for topic, (text, _) in CLAIMS.items() if text not in readme] == untold
    assert (f"manifests of these runs tell: {', '.join(untold)}." in readme) is bool(untold)


def test_precision_and_other_code_are_told(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run")
    found = documents(tmp_path / "to", run, precision="fp32", other_code=True)
    assert "ckpt4000_fp32" in found["init_datasets.sh"]
    assert "export USE_BF16=false" in found["run_and_time.sh"]
    assert "Other code made these results" in found["README.md"]


def test_options_are_those_in_which_the_run_differs_from_its_system(tmp_path: Path) -> None:
    """A system of a user's own differs from the benchmark's."""
    system = {"name": "dgxh100_n64", "nodes": 9, "device": "cuda", "micro_batch_size": 4, "nothing": 3}
    system["collectives"] = {"nccl_ctas": 8, "nccl_priority": False}
    own = {"system": {**system, "name": "mine"}, "benchmark": {"name": "gpt3_175b"}}
    texts = [
        documents(tmp_path / f"to_{number}", run_of(tmp_path / f"run_{number}", config))["run_and_time.sh"]
        for number, config in enumerate(({"system": system}, own))
    ]
    assert texts[0] == texts[1]
    text = texts[0]
    assert "export SYSTEM=dgxh100_n64\n" in text
    assert "export TRAIN_OPTIONS='--submission-org=ACME --micro-batch-size=4 --nccl-ctas=8'\n" in text


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
