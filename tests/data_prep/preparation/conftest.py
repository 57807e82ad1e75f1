from pathlib import Path
from typing import Any

import pytest

from tests.data_prep.fake_hub import FILES, fake_hub


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("huggingface_hub")
    with fake_hub(dict(FILES)) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        yield server
