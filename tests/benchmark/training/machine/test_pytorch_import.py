"""PyTorch is imported without the search for the module of each caller, and nothing stays of that."""

import subprocess
import sys

import pytest

from tests.support import REPOSITORY

SCRIPT = """
import inspect, sys
look_up = inspect.getmodule
from benchmark.training.machine.pytorch_import import import_pytorch
import_pytorch()
assert inspect.getmodule is look_up
assert "torch._dynamo" in sys.modules
print(len(inspect.modulesbyfile), len(sys.modules))
"""


@pytest.mark.slow
def test_few_modules_are_searched_for() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    searched, imported = map(int, done.stdout.split())
    assert searched < imported / 4
