"""The script: what it would run under Slurm, and what it refuses."""

import dataclasses
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from benchmark.__main__ import main
from benchmark.commands.command_table import parse
from benchmark.commands.run_commands import EvaluateCommand, TrainCommand
from benchmark.config.benchmarks import BENCHMARKS
from benchmark.config.run_config import RunConfig
from benchmark.launch.slurm.job_options import VARIABLES, JobOptions
from foundation.errors import InputError
from tests.support import REPOSITORY

GIVEN = {"DRY_RUN": "1"}


@pytest.fixture(scope="module", autouse=True)
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders that the variables name: ``data`` with the indices of all datasets, and ``ckpt4000``."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "data").mkdir()
    (folder / "ckpt4000").mkdir()
    (folder / "ckpt4000" / "metadata.json").touch()
    for benchmark in BENCHMARKS.values():
        for name in (*benchmark.token_files.training, benchmark.token_files.validation):
            (folder / "data" / f"{name}.idx").touch()
    GIVEN.update(COM_DIR=str(folder / "data"), EXTERNAL_MODEL_CHECKPOINT_DIR=str(folder / "ckpt4000"))
    return folder


JOB = ("/logs", "/bpe", "image")
"""Arguments of a job; without a container the script looks for a Python that has all packages, which takes longer."""


def script(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "MASTER"))}
    environment.update(variables)
    return subprocess.run(
        [str(REPOSITORY / "run_gpt3.sh"), *arguments], env=environment, capture_output=True, text=True, check=False
    )


def train_command(arguments: tuple[str, ...] = JOB, **variables: str) -> tuple[list[str], RunConfig]:
    """The srun line that would run, and the configuration its options stand for."""
    done = script(*arguments, **{**GIVEN, **variables})
    assert done.returncode == 0, done.stderr
    words = shlex.split(done.stdout)
    options = words[words.index("train") + 1 :]
    parsed = parse(["train", *options])
    assert isinstance(parsed, TrainCommand)
    return words, parsed.config


def test_175b_run_gets_what_the_variables_say(inputs: Path) -> None:
    words, config = train_command(("/logs", "/bpe", "./README.md"), USE_BF16="yes", SEED="5")
    assert words[:2] == ["srun", "--kill-on-bad-exit=1"]
    assert {"--nodes=64", "--ntasks=512", "--ntasks-per-node=8", "--distribution=block", "--wait=60"} <= set(words)
    assert not any(word.startswith("--gpus") for word in words)  # refused where Slurm deals out none
    assert config.benchmark.name == "gpt3_175b"
    assert (config.benchmark.global_batch_size, config.benchmark.start_samples) == (1536, 6_144_000)
    assert (config.benchmark.optimizer.lr, config.benchmark.optimizer.min_lr) == (2e-5, 2e-6)
    assert (config.precision, config.data.seed, config.run_dir) == ("bf16", 5, Path("/logs"))
    data, checkpoint = inputs / "data", inputs / "ckpt4000"
    train = ("0.5", f"{data}/c4_en_6_c4_spm_text_document", "0.5", f"{data}/c4_en_7_c4_spm_text_document")
    assert config.data.train_data_path == train
    assert config.data.valid_data_path == ("1.00", f"{data}/c4_en_validation_subset_c4_spm_text_document")
    assert config.data.checkpoint == checkpoint
    assert (config.system.nodes, config.system.devices_per_node) == (64, 8)
    # the container sees what the run needs, and is kept on the nodes for the next attempt
    assert words[words.index("--container-image") + 1] == str(REPOSITORY / "README.md")  # a path is an image's file
    mounts = words[words.index("--container-mounts") + 1].split(",")
    assert mounts == [f"{path}:{path}" for path in (REPOSITORY, "/logs", data, checkpoint)]
    assert "python3" in words
    assert words[words.index("--container-name") + 1].startswith("gpt3_")
    assert not Path("/logs").exists()


def test_newer_form_without_a_container_in_a_job_that_decides_about_processes(inputs: Path) -> None:
    """The data are an argument; FP32 is not chosen silently."""
    slurm = {"SLURM_JOB_ID": "7", "SLURM_SUBMIT_DIR": str(REPOSITORY)}
    slurm |= {"SLURM_JOB_NUM_NODES": "32", "SLURM_NTASKS_PER_NODE": "4"}
    words, config = train_command(("/logs", "/bpe", str(inputs / "data"), "none"), USE_BF16="0", **slurm, COM_DIR="")
    assert "--container-image" not in words
    assert config.data.valid_data_path == (
        "1.00",
        f"{inputs}/data/c4_en_validation_subset_c4_spm_text_document",
    )
    assert (config.system.nodes, config.system.devices_per_node, config.precision) == (32, 4, "fp32")


@pytest.mark.parametrize(
    ("variables", "precision"),
    [
        ({"PRECISION": "bf16"}, "bf16"),
        ({"PRECISION": "fp32", "USE_BF16": "false"}, "fp32"),
        ({"PRECISION": "", "USE_BF16": "true"}, "bf16"),
    ],
)
def test_precision_is_the_formats_name_and_agrees_with_use_bf16(variables: dict[str, str], precision: str) -> None:
    assert train_command(JOB, **variables)[1].precision == precision


def test_llama_starts_without_a_checkpoint_on_the_nodes_of_its_system(inputs: Path) -> None:
    variables = {"BENCHMARK": "llama31_8b", "LR": "2e-3", "GBS": "128"}
    words, config = train_command(JOB, **variables, EXTERNAL_MODEL_CHECKPOINT_DIR="")
    assert {"--nodes=1", "--ntasks=8"} <= set(words)
    assert (config.benchmark.name, config.precision, config.data.checkpoint) == ("llama31_8b", "bf16", None)
    assert config.data.train_data_path == (f"{inputs}/data/c4-train.en_6_text_document",)
    assert config.data.valid_data_path == (
        "1.00",
        f"{inputs}/data/c4-validation-91205-samples.en_text_document",
    )
    assert (config.system.nodes, config.benchmark.optimizer.lr, config.benchmark.global_batch_size) == (1, 2e-3, 128)


def test_dry_run_without_slurm_prints_the_processes_of_this_machine_or_why_it_has_none(inputs: Path) -> None:
    variables = {**GIVEN, "EXTERNAL_MODEL_CHECKPOINT_DIR": ""}
    done = script("/logs", "/bpe", "none", **variables, BENCHMARK="rehearsal_llama")
    words = shlex.split(done.stdout)
    assert words[1:7] == ["-m", "benchmark.launch", "--processes", "2", "--run-dir", "/logs"]
    assert words[7:10] == ["--", "train", "rehearsal_llama"] and words.count("--run-dir") == 1
    assert done.stderr == ""
    done = script("/logs", "/bpe", "none", **variables, BENCHMARK="llama31_8b")
    assert done.stdout.startswith("srun ") and "this machine has no GPU" in done.stderr


def test_variables_override_the_benchmark() -> None:
    _, config = train_command(
        GBS="4096",
        LR="3.0e-5",
        MIN_LR="3.0e-6",
        EXTERNAL_TRAINING_ITERATIONS="100",
        EXTERNAL_GBS="2048",
        EXTERNAL_MODEL_CHECKPOINT_DIR="",
        SYSTEM="dgxa100_n64",
        TRAIN_OPTIONS="--submission-org ACME --save-interval 100",
    )
    assert config.benchmark.global_batch_size == 4096
    assert (config.benchmark.optimizer.lr, config.benchmark.optimizer.min_lr) == (3e-5, 3e-6)
    assert config.benchmark.start_samples == 204_800
    assert config.precision == "fp32"  # as in the reference, BF16 is asked for
    assert config.data.checkpoint is None
    assert (config.system.platform, config.logging.submission_org) == ("DGX-A100-n64", "ACME")
    assert config.checkpoints.save_interval == 100


def test_queues_of_a_gpu_are_set_for_the_job_and_may_be_chosen(tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text('#!/bin/sh\n[ "$1" = -c ] || echo "queues ${CUDA_DEVICE_MAX_CONNECTIONS:-unset}"\n')
    python.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    for more, queues in (({}, "1"), ({"SYSTEM": "dgxb200_n8"}, "unset"), ({"CUDA_DEVICE_MAX_CONNECTIONS": "8"}, "8")):
        done = script(*JOB, **{**GIVEN, "PATH": path, **more})
        assert done.stdout == f"queues {queues}\n", done.stderr


def test_checkpoint_can_be_evaluated_with_the_same_variables(inputs: Path) -> None:
    done = script(*JOB, **GIVEN, COMMAND="evaluate")
    warned = done.stderr.splitlines()
    assert [line[:9] for line in warned] == ["warning: "] * 4 and "100 instead of 63 GiB" in warned[1]  # of FP32
    words = shlex.split(done.stdout)
    assert words[words.index("benchmark") + 1] == "evaluate"
    options = words[words.index("evaluate") + 1 :]
    parsed = parse(["evaluate", *options])
    assert isinstance(parsed, EvaluateCommand)
    assert parsed.config.data.checkpoint == inputs / "ckpt4000"


def test_rehearsal_is_what_runs_without_arguments(inputs: Path) -> None:
    c4 = inputs / "c4"
    (c4 / "en").mkdir(parents=True)
    (c4 / "en" / "c4-train.00000-of-00001.json.gz").touch()
    (c4 / "c4-validation.json").touch()
    done = script(DRY_RUN="1", C4_PATH=str(c4), SEED="3", WORK_DIR="/work dir")
    words = shlex.split(done.stdout)
    expected = ["benchmark", "rehearse", "rehearsal", "--work-dir", "/work dir", "--c4-path", str(c4), "--seed", "3"]
    assert words[words.index("-m") + 1 :] == expected
    words = shlex.split(script(DRY_RUN="1", BENCHMARK="rehearsal_llama", PRECISION="fp8").stdout)
    work_dir = str(REPOSITORY / "runs" / "rehearsal_llama")
    assert words[-5:] == ["rehearsal_llama", "--work-dir", work_dir, "--precision", "fp8"]
    with pytest.raises(InputError, match=r"'rehearsal_lama'; did you mean rehearsal_llama\?"):
        main(["rehearse", "rehearsal_lama"])


def test_every_variable_that_the_script_reads_is_documented() -> None:
    head, body = (REPOSITORY / "run_gpt3.sh").read_text().split("set -euo pipefail", 1)
    read = set(re.findall(r"\$\{([A-Z][A-Z0-9_]*):?[-?]", body)) - set(re.findall(r"^ *([A-Z][A-Z0-9_]*)=", body, re.M))
    assert len(read) > 5
    table = {row.name for row in VARIABLES} | {"BARE_PYTHON", "CHAINED_JOB"}  # of environment.sh and of queue.py
    assert {name for name in read if name not in head and name not in table and "SLURM" not in name} == set()


def test_help_lists_every_variable() -> None:
    done = script("--help", COLUMNS="120")
    assert done.returncode == 0
    assert all(re.search(rf"^  {row.name} +{re.escape(row.meaning[:20])}", done.stdout, re.M) for row in VARIABLES)
    assert max(map(len, done.stdout.splitlines())) <= 120


def test_variables_set_fields_and_options_that_exist() -> None:
    fields = {field.name for field in dataclasses.fields(JobOptions)}
    assert {row.sets for row in VARIABLES if not row.option} - {""} <= fields
    values = {"--precision": "bf16", "--data-folder": "/data", "--checkpoint": "/ckpt", "--system": "dgxh100_n64"}
    words = [word for row in VARIABLES if row.option for word in (row.option, values.get(row.option, "1536"))]
    parse(["train", "gpt3_175b", *words])


def documented(page: str) -> set[str]:
    """Names in the first column of the tables of a page."""
    rows = re.findall(r"^\| (`[A-Z].*?) \|", (REPOSITORY / page).read_text(), flags=re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([A-Z][A-Z0-9_]+)`", row)}


def test_variables_of_the_manual_exist() -> None:
    names = documented("docs/slurm.md") - {"LOG_DIR", "BPE_DIR", "CONTAINER"}
    assert {"COM_DIR", "GBS", "CHAIN"} <= names <= {row.name for row in VARIABLES}
