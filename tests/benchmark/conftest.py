import pytest

from tests.benchmark.tiny import Inputs, write_inputs, write_whole_chunks


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """Files of the tiny benchmark, which tests only read."""
    made = write_inputs(tmp_path_factory.mktemp("tiny"))
    whole_chunks = write_whole_chunks(made.folder / "paxml", tmp_path_factory.mktemp("whole_chunks") / "checkpoint")
    return Inputs(made.folder, whole_chunks)
