import pytest

from tests.benchmark.tiny import Inputs, write_inputs


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """Files of the tiny benchmark, which tests only read."""
    made = write_inputs(tmp_path_factory.mktemp("tiny"))
    link = tmp_path_factory.mktemp("linked") / "checkpoint"
    link.symlink_to(made.checkpoint)
    return Inputs(made.folder, link)
