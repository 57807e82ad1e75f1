"""What a run's folder says of where it ran, and what it must not say."""

import json
import os
from importlib.metadata import version
from pathlib import Path

import pytest

from benchmark.launch.slurm.job_options import VARIABLES
from benchmark.planning.machine.environment_snapshot import LEFT_OUT, environment_snapshot, recorded_variables
from tests.support import forked_command

NOT_RECORDED = {
    "WANDB_API_KEY": "abc",
    "MY_LOGGING_PASSPHRASE_FOR_WANDB": "0123456789abcdef0123456789abcdef01234567",
    "HF_TOKEN": "abc",
    "ALERTS": "https://hooks.slack.com/services/T0/B0/abc",
    "STORAGE": "DefaultEndpointsProtocol=https;AccountName=me;AccountKey=abc==",
    "REGISTRY_CREDS": "me:abc",
    "DB_PW": "abc",
    "FETCH": "curl -u me:abc https://example.com",
    "TRAIN_OPTIONS": "--after-checkpoint /home/me/notify.sh --wandb online",
    "CHAIN_OPTIONS": "--comment abc",
    "SLURM_JWT": "abc",
    "SLURM_EXPORT_ENV": "ALL,STORAGE=abc",
    "HOME": "/home/me",
}
RECORDED = {
    "COM_DIR": "/data/tokens",
    "CUDA_VISIBLE_DEVICES": "0,1",
    "MASTER_PORT": "20001",
    "NCCL_DEBUG": "INFO",
    "NCCL_IB_PKEY": "0x8001",
    "OMP_NUM_THREADS": "4",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "SEED": "7",
    "SLURM_JOB_ID": "5",
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "100",
}


def test_only_listed_variables_are_recorded() -> None:
    assert recorded_variables({**NOT_RECORDED, **RECORDED}) == RECORDED


SECRET_VALUES = [
    "ghp_0123456789abcdef0123",
    "AKIAIOSFODNN7EXAMPLE",
    "Bearer abcdefghijkl",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
    "curl -u me:hunter2 https://example.com",
]


@pytest.mark.parametrize("value", SECRET_VALUES)
def test_a_recorded_variable_with_a_secret_value(value: str) -> None:
    assert recorded_variables({"SLURM_JOB_NAME": value}) == {"SLURM_JOB_NAME": LEFT_OUT}


@pytest.mark.parametrize(
    ("value", "masked"),
    [
        ("http://me:hunter2@host:1", f"http://{LEFT_OUT}@host:1"),
        ("https://host/data?sig=hunter2", f"https://host/data?{LEFT_OUT}"),
        ("host=db password=hunter2 port=1", f"host=db password={LEFT_OUT} port=1"),
        ("AccountName=me;AccountKey=hunter2==;x=1", f"AccountName=me;AccountKey={LEFT_OUT};x=1"),
    ],
)
def test_secret_parts_of_a_recorded_value(value: str, masked: str) -> None:
    assert recorded_variables({"COM_DIR": value}) == {"COM_DIR": masked}


def test_variables_of_a_job_are_recorded_but_for_commands() -> None:
    names = {row.name for row in VARIABLES}
    assert names - set(recorded_variables(dict.fromkeys(names, "1"))) == {"TRAIN_OPTIONS", "CHAIN_OPTIONS"}


@pytest.mark.slow
def test_command_writes_it_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "hunter2")
    done = forked_command("benchmark.planning.machine.environment_snapshot", tmp_path / "job.json")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "job.json").read_text()
    found = json.loads(text)
    assert found["packages"]["torch"] == version("torch")
    assert found["limits"]["NOFILE"][1] != 0
    assert "WANDB_API_KEY" not in found["variables"]
    assert "hunter2" not in text
    assert found["cores"] == sorted(os.sched_getaffinity(0))


def test_what_the_machine_does_not_say_is_left_out() -> None:
    assert "" not in environment_snapshot({}).values()
