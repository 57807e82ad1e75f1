"""``replay`` as a reviewer types it."""

import json
from pathlib import Path

import pytest

from tests.benchmark.replay.conftest import honest_run, run_dir
from tests.support import assert_refused, command

__all__ = ["honest_run", "run_dir"]


@pytest.mark.slow
def test_exit_statuses(run_dir: Path, tmp_path: Path) -> None:
    done = command("benchmark", "replay", run_dir, "--steps", "4:6", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["holds"], found["exact"], found["start"], found["compared_steps"]) == (True, True, 4, 2)
    log = run_dir / "result_0.txt"
    log.write_text(log.read_text().replace('"key": "seed", "value": 17', '"key": "seed", "value": 16'))
    done = command("benchmark", "replay", run_dir, "--steps", "6:6")
    assert (done.returncode, done.stderr) == (1, "")
    assert "line 13, step 6: SHA-256 of result_0.txt" in done.stdout
    assert_refused(command("benchmark", "replay", tmp_path, "--steps", "1:2"), "a run writes it with train --evidence")
