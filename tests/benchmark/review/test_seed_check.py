"""The official seed checker as a command."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmark.review.official_checkers import SEED_CHECK
from benchmark.review.seed_check import main
from tests.benchmark.review.fixture import records, write_run


def test_different_seeds_pass_and_equal_ones_fail(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first, second, again = (str(write_run(tmp_path / str(n), records(s))) for n, s in enumerate((1, 2, 1)))
    assert main(["4.1.0", first, second]) == 0
    assert "SEED CHECKER PASSED on 2 files\n" in capfd.readouterr().out
    assert main(["4.1.0", first, again]) == 1
    assert "SEED CHECKER FAILED on 2 files\n" in capfd.readouterr().out
    assert main(["4.1.0"]) == 1


@pytest.mark.slow
def test_as_a_program(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / str(seed), records(seed)) for seed in (1, 2)]
    words = [sys.executable, "-P", str(SEED_CHECK), "4.1.0", *map(str, paths)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "SEED CHECKER PASSED on 2 files")
    assert "INFO - Running Seed Checker" in done.stdout.replace("  ", " ")
