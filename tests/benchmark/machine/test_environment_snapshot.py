"""What a run's folder says of where it ran, and what it must not say."""

import json
import os
from importlib.metadata import version
from pathlib import Path

import pytest

from benchmark.machine.environment_snapshot import LEFT_OUT, environment_snapshot, without_secrets
from tests.support import forked_command

SECRETS = {
    "WANDB_API_KEY": "abc",
    "HF_TOKEN": "abc",
    "AWS_SECRET_ACCESS_KEY": "abc",
    "DB_PASSWORD": "abc",
    "MYSQL_PWD": "abc",
    "PGPASS": "abc",
    "SSH_AUTH_SOCK": "/tmp/agent",
    "GOOGLE_APPLICATION_CREDENTIALS": "/home/key.json",
    "SLACK_WEBHOOK": "https://hooks.example.com/abc",
    "TRAIN_OPTIONS": "--notify ghp_0123456789abcdef0123",
    "NOTE": "AKIAIOSFODNN7EXAMPLE",
    "HEADER": "Bearer abcdefghijkl",
    "JWT": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
}
PLAIN = {
    "COM_DIR": "/data/tokens",
    "PWD": "/work",
    "OLDPWD": "/home",
    "NCCL_DEBUG": "INFO",
    "PATH": "/usr/bin:/bin",
    "MASTER_PORT": "20001",
    "SEED": "7",
}


@pytest.mark.parametrize("name", SECRETS)
def test_secrets_are_left_out(name: str) -> None:
    assert without_secrets({name: SECRETS[name]}) == {name: LEFT_OUT}


def test_what_is_no_secret_stays() -> None:
    assert without_secrets(PLAIN) == PLAIN


def test_credentials_within_values() -> None:
    found = without_secrets(
        {
            "HTTPS_PROXY": "http://me:hunter2@proxy:3128",
            "PIP_INDEX_URL": "https://index.example.com/simple?user=me&token=hunter2&x=1",
            "SETTINGS": "host=db password=hunter2 port=1",
            "BASH_FUNC_module%%": "() { hunter2; }",
        }
    )
    assert "hunter2" not in json.dumps(found)
    assert found["HTTPS_PROXY"] == f"http://{LEFT_OUT}@proxy:3128"
    assert found["PIP_INDEX_URL"].startswith("https://index.example.com/simple?user=me&token=")
    assert found["SETTINGS"].endswith("port=1")


@pytest.mark.slow
def test_command_writes_it_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "hunter2")
    done = forked_command("benchmark.machine.environment_snapshot", tmp_path / "job.json")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "job.json").read_text()
    found = json.loads(text)
    assert found["packages"]["torch"] == version("torch")
    assert found["limits"]["NOFILE"][1] != 0
    assert found["variables"]["WANDB_API_KEY"] == LEFT_OUT
    assert "hunter2" not in text
    assert found["cores"] == sorted(os.sched_getaffinity(0))


def test_what_the_machine_does_not_say_is_left_out() -> None:
    assert "" not in environment_snapshot({}).values()
