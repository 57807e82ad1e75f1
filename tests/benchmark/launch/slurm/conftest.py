from pathlib import Path

import pytest

from tests.benchmark.launch.slurm.stand_in_job import Job


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)
