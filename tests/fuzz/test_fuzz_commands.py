"""A few random cases; ``python -m tests.fuzz.fuzz_commands`` tries as many as one likes.

Of faults only in commands of one thread: in others the call number 17 is another one each time.
"""

import shutil
import subprocess
import sys

import pytest

from tests.support import REPOSITORY


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="the failing system calls want a C compiler")
def test_random_commands_over_damaged_files_and_failing_calls() -> None:
    words = ["--cases", "6", "--seed", "40", "--command", "validation-subset|samples|checksums verify"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.fuzz_commands", *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 cases, 0 broken" in done.stdout
