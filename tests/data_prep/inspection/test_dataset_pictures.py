"""Pictures of datasets: the same bytes each time, and what is refused."""

import itertools
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from data_prep.commands.inspect_command import InspectDatasetCommand
from data_prep.inspection.dataset_pictures import _draw_lengths
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
    for _ in range(2 if suffix == ".svg" else 1):
        done = command("data_prep", "inspect", "--data-path", prefix, "--against", prefix, "--picture", picture)
        assert done.returncode == 0, done.stderr
        made.append(picture.read_bytes())
    assert made[0] == made[-1]
    assert made[0].startswith(b"<?xml" if suffix == ".svg" else b"\x89PNG")
    assert sorted(path.suffix for path in tmp_path.iterdir()) == sorted([".bin", ".idx", suffix])


@pytest.mark.slow
@pytest.mark.parametrize(("shortest", "times"), [(1, 3000), (20, 1.2), (20, 30), (400, 3)])
def test_ticks_are_few_and_do_not_overlap(shortest: int, times: float, tmp_path: Path) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure(figsize=(6, 4.5), layout="constrained")
    axes = figure.subplots()
    lengths = np.unique(np.linspace(shortest, shortest * times, 50).astype(np.int64))
    _draw_lengths(["x"], [pd.Series(1, lengths)], axes)
    figure.canvas.draw()
    low, high = axes.get_xlim()
    labels = [
        label.get_window_extent()
        for place, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
        if low <= place <= high
    ]
    assert 1 <= len(labels) <= 10
    assert not any(one.overlaps(other) for one, other in itertools.pairwise(labels))
    assert not any(label.get_text() for label in axes.get_xticklabels(minor=True))


def test_a_picture_needs_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dataset(tmp_path / "x", SIZES)
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "matplotlib", None)
        patched.delitem(sys.modules, "matplotlib.figure", raising=False)
        with pytest.raises(InputError, match="--picture needs matplotlib: pip install matplotlib"):
            InspectDatasetCommand(data_path=tmp_path / "x", picture=tmp_path / "p.svg").run()
    arguments = ["inspect", "--data-path", tmp_path / "x", "--picture"]
    assert_refused(command("data_prep", *arguments, tmp_path / "p.jpg"), "ends in .svg or .png")
    (tmp_path / "p.svg").write_text("the user's")
    assert_refused(command("data_prep", *arguments, tmp_path / "p.svg"), "exists and is not a .svg picture")
    assert command("data_prep", *arguments[:-1]).returncode == 0
