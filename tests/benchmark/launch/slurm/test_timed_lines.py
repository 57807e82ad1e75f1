"""Every line of a job's log has a time, those of its processes too."""

import re
import subprocess
import sys
from pathlib import Path

from tests.support import REPOSITORY

PROGRAM = """
import os, pathlib, sys
from benchmark.launch.slurm.timed_lines import timed_lines
with timed_lines(pathlib.Path(sys.argv[1])):
    print("one", flush=True)
    os.system("echo two; echo three >&2")
print("after", flush=True)
"""


def test_lines_of_all_processes_are_timed_and_kept(tmp_path: Path) -> None:
    words = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    *timed, last = done.stdout.splitlines()
    assert (last, done.stderr) == ("after", "")
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \w+$", line) for line in timed)
    assert sorted(line[20:] for line in timed) == ["one", "three", "two"]
    assert next(iter(tmp_path.iterdir())).read_text().splitlines() == timed
