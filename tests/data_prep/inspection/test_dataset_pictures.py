"""Pictures of datasets: the same bytes each time, and what is refused."""

import sys
from pathlib import Path

import pytest

from data_prep.commands.dataset_commands import InspectDatasetCommand
from stage.errors import InputError
from tests.data_prep.datasets import write_documents
from tests.support import assert_refused, command, write_dataset

SIZES = [30, 11, 60]


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_the_picture(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    prefix = write_documents(tmp_path / "x", [[1] * length for length in (1, 1, 5, 200)])
    picture = tmp_path / f"p{suffix}"
    made = []
    for _ in range(2):
        done = command("data_prep", "inspect", "--data-path", prefix, "--against", prefix, "--picture", picture)
        assert done.returncode == 0, done.stderr
        made.append(picture.read_bytes())
    assert made[0] == made[1]
    assert made[0].startswith(b"<?xml" if suffix == ".svg" else b"\x89PNG")
    assert sorted(path.suffix for path in tmp_path.iterdir()) == sorted([".bin", ".idx", suffix])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a\udcfe", "$x", "$a_b$", r"$\foo$", "x\ny"])
def test_names_of_any_kind_are_drawn(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    prefix = write_documents(tmp_path / name, [[1] * length for length in (1, 5)])
    InspectDatasetCommand(prefix, picture=tmp_path / "p.svg").run()
    assert (tmp_path / "p.svg").read_bytes().startswith(b"<?xml")


def test_a_picture_needs_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dataset(tmp_path / "x", SIZES)
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "matplotlib", None)
        patched.delitem(sys.modules, "matplotlib.figure", raising=False)
        with pytest.raises(InputError, match="--picture needs matplotlib: pip install matplotlib"):
            InspectDatasetCommand(tmp_path / "x", picture=tmp_path / "p.svg").run()
    arguments = ["inspect", "--data-path", tmp_path / "x", "--picture"]
    assert_refused(command("data_prep", *arguments, tmp_path / "p.jpg"), "ends in .svg or .png")
    (tmp_path / "p.svg").write_text("the user's")
    assert_refused(command("data_prep", *arguments, tmp_path / "p.svg"), "exists and is not a .svg picture")
    assert command("data_prep", *arguments[:-1]).returncode == 0
