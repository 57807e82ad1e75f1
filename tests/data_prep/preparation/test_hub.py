"""Files of a Hugging Face dataset: one commit, broken connections, and what is said when there is no answer."""

import hashlib
import random
import socket
import sys
from pathlib import Path

import pytest

from data_prep.preparation.hub import Hub
from stage.errors import InputError
from tests.data_prep.fake_hub import COMMITS, NAMES, FakeHub, all_files, fetched
from tests.support import assert_refused, command


@pytest.mark.slow
def test_a_connection_that_breaks_is_taken_up_again(hub: FakeHub, tmp_path: Path) -> None:
    hub.files[NAMES[0]] = random.Random(0).randbytes(21_000_000)
    hub.announced[NAMES[0]] = hashlib.sha256(hub.files[NAMES[0]]).hexdigest()
    hub.break_after = 15_000_000
    done = command("data_prep", "fetch", "--output", tmp_path / "c4", "--what", "train", "--shards", "768")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "c4" / NAMES[0]).read_bytes() == hub.files[NAMES[0]]
    (_, begun), (_, resumed) = hub.downloads
    assert begun == ""
    assert 0 < int(resumed.removeprefix("bytes=").split("-")[0]) <= 15_000_000


@pytest.mark.slow
def test_the_commit_stays_the_same(hub: FakeHub, tmp_path: Path) -> None:
    output = tmp_path / "c4"
    shard = ["fetch", "--output", output, "--what", "train", "--shards"]
    assert command("data_prep", *shard, "768", "--revision", "older").returncode == 0
    assert command("data_prep", *shard, "769").returncode == 0
    assert all("/resolve/" + COMMITS["older"] in path for _, path, _ in hub.requests if "/resolve/" in path)
    assert_refused(fetched(output, "--revision", "none"), "Hugging Face, dataset allenai/c4: RevisionNotFoundError")


def test_a_file_that_the_hub_lacks_is_named(hub: FakeHub, tmp_path: Path) -> None:
    del hub.files[NAMES[2]]
    assert_refused(fetched(tmp_path / "c4"), "no large file " + NAMES[2], "--revision")
    assert all_files(tmp_path / "c4") == []


def test_no_network_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{unused.getsockname()[1]}")
        done = fetched(tmp_path / "c4")
    assert_refused(done, "Hugging Face, dataset allenai/c4: ConnectError", "check the network", "--from")
    assert all_files(tmp_path / "c4") == []


def test_huggingface_hub_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match="fetch needs huggingface_hub: pip install huggingface_hub"):
        Hub("allenai/c4", "main")
