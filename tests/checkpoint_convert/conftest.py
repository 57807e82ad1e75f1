from pathlib import Path

import pytest

from tests.checkpoint_convert.tiny import write_megatron


@pytest.fixture(scope="session")
def megatron(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_megatron(tmp_path_factory.mktemp("megatron"))
