"""A few random hostile files of each kind; ``python -m tests.fuzz.fuzz_files`` reads as many as one likes."""

import pickle
import socket
import subprocess
from pathlib import Path, PurePosixPath

import pytest

from tests.fuzz.fuzz_files import KINDS, read_honest_files, try_cases
from tests.fuzz.hostile_pickles import attacks
from tests.fuzz.side_effects import side_effects


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_hostile_files_are_read_without_side_effects(kind: str, tmp_path: Path) -> None:
    read_honest_files()
    assert try_cases(kind, range(40), tmp_path) == {}


NOTICED = {
    "a process": "started a process: os.system",
    "code": "loaded code: exec",
    "a file": "wrote ",
    "a name looked up": "used the network: socket.gethostbyname",
    "a module": "loaded code: import 'antigravity'",
    "an attribute": "changed the attribute __str__ of pathlib.PurePosixPath",
    "memory": "raised MemoryError",
    "a shared tuple as a key": "the process died, or took 1 s of processor time",
}


@pytest.mark.parametrize(("attack", "effect"), NOTICED.items(), ids=NOTICED)
def test_effects_of_pythons_unpickler_are_noticed(
    attack: str, effect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "processor time" in effect:
        monkeypatch.setattr("tests.fuzz.side_effects.CPU_SECONDS", 1)
    content = b"\x80\x04" + attacks(tmp_path / "outside")[attack] + b"."
    inside = tmp_path / "inside"
    effects = side_effects(lambda: pickle.loads(content), inside)
    assert any(text.startswith(effect) for text in effects), effects


def test_other_effects_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "outside").write_text("")

    def act() -> None:
        (tmp_path / "inside" / "made").mkdir()
        (tmp_path / "outside").read_bytes()
        list(tmp_path.iterdir())
        subprocess.run(["true"], check=True)
        socket.socket().connect_ex(("127.0.0.1", 1))
        raise KeyError("a")

    (tmp_path / "inside" / "file").write_text("")
    effects = "\n".join(side_effects(act, tmp_path / "inside"))
    for effect in (
        "changed the disk: os.mkdir",
        "read ",
        "listed ",
        "started a process",
        "used the network",
        "KeyError",
    ):
        assert effect in effects
    assert side_effects(lambda: (tmp_path / "inside" / "file").read_bytes(), tmp_path / "inside") == []
    assert PurePosixPath("a/b").name == "b"
