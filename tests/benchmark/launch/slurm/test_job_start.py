"""What a job decides before its first attempt."""

import pytest

from benchmark.launch.keep_running import Refused
from benchmark.launch.slurm.job_start import count_nodes


@pytest.mark.parametrize(
    ("allocated", "asked", "of_system", "needed"),
    [
        (3, None, None, 3),
        (3, None, 64, 3),
        (3, None, 2, 3),  # half as many again are no spare ones
        (9, None, 8, 8),  # up to an eighth more are
        (10, None, 8, 10),
        (3, 2, 64, 2),
    ],
)
def test_all_nodes_are_used_unless_a_few_are_beyond_the_system(
    allocated: int, asked: int | None, of_system: int | None, needed: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert count_nodes(allocated, asked, of_system) == needed
    spare = f"{needed} of {allocated} nodes are used, {allocated - needed} are spare\n"
    assert capfd.readouterr().err == (spare if needed < allocated else "")


def test_job_with_fewer_nodes_than_asked_for_is_refused() -> None:
    with pytest.raises(Refused, match="NODES=4, but the job has 3 nodes: sbatch --nodes=4 or more"):
        count_nodes(3, 4, None)
