"""The environment variables of a rank: one line for a damaged one, and the names that they make."""

import os

import pytest

from benchmark.training.engine.rank_environment import Environment, read_environment
from foundation.errors import InputError

OF_LAUNCHERS = (
    *("ATTEMPT", "LAUNCH_ID", "LAUNCHED_S", "SUBMITTED_S", "SLURM_JOB_ID", "SLURM_STEP_ID", "NODE_NAME"),
    *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "CUDA_VISIBLE_DEVICES"),
    *("TORCHELASTIC_USE_AGENT_STORE", "OMP_NUM_THREADS"),
)


def test_damaged_environment_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for changes, complaint in (
        ({"RANK": "2", "WORLD_SIZE": "2"}, "expected 0 <= RANK < WORLD_SIZE"),
        ({"RANK": "first"}, "invalid literal"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "needs MASTER_ADDR and MASTER_PORT"),
    ):
        with monkeypatch.context() as patch:
            for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
                patch.delenv(name, raising=False)
            for name, value in changes.items():
                patch.setenv(name, value)
            with pytest.raises(InputError, match=complaint):
                read_environment()


def test_environment_of_one_process_and_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", *OF_LAUNCHERS):
        monkeypatch.delenv(name, raising=False)
    assert read_environment() == Environment(0, 1, 0, "localhost:-", f"process-{os.getpid()}-0")
    names = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"}
    given = {"ATTEMPT": "0007", "SLURM_JOB_ID": "12", "LAUNCHED_S": "1.5", "NODE_NAME": "n7"}
    given |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "OMP_NUM_THREADS": "3,1"}
    for name, value in {**names, **given}.items():
        monkeypatch.setenv(name, value)
    assert read_environment() == Environment(
        5, 8, 1, "node0:29500", "0007", "12", "12", 1.5, host="n7", agent_store=True, threads=3
    )


def test_attempts_have_a_name_that_all_processes_share(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", *OF_LAUNCHERS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a/b")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    assert read_environment().attempt == "torchrun-a_b-2"
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    assert read_environment().launch == "12"
    with monkeypatch.context() as patch:
        patch.delenv("SLURM_JOB_ID")
        for run, launch in (("abc", "abc"), ("none", None)):  # none: torchrun was given no name
            patch.setenv("TORCHELASTIC_RUN_ID", run)
            assert read_environment().launch == launch
    monkeypatch.setenv("LAUNCH_ID", "mine")
    assert read_environment().launch == "mine"
    for name, value in (("ATTEMPT", "../0001"), ("SUBMITTED_S", "noon"), ("OMP_NUM_THREADS", "0")):
        with monkeypatch.context() as patch, pytest.raises(InputError, match=f"{name}={value}"):
            patch.setenv(name, value)
            read_environment()
