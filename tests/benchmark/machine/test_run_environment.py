"""What a run's events say of the code and the machine it ran on."""

import platform
from importlib.metadata import version

import pytest
import torch

from benchmark.machine.run_environment import PACKAGES, run_environment
from stage.git import commit_of


def test_versions_and_commit() -> None:
    found = run_environment("cpu")
    assert found["python"] == platform.python_version()
    assert {package: found[package] for package in PACKAGES} == {package: version(package) for package in PACKAGES}
    assert found.get("commit") == commit_of()
    assert found["kernel"].startswith(platform.system())
    assert not {"device", "cuda", "nccl"} & set(found)
    assert None not in found.values()


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_a_gpu_that_is_not_there_is_not_named() -> None:
    assert run_environment("cuda") == run_environment("cpu")
