"""Tables and pictures of what datasets hold, and what is refused before anything is counted."""

import sys
from pathlib import Path

import pandas as pd
import pytest

from data_prep.inspection.dataset_exports import dataset_tables
from data_prep.inspection.inspect_command import InspectDatasetCommand
from data_prep.inspection.inspect_dataset import inspect_dataset
from data_prep.tokenizing.tokenizer import Tokenizer
from foundation.errors import InputError
from tests.data_prep.datasets import write_documents
from tests.support import assert_refused, command


def test_tables_of_two_datasets(corpus_tokenizer: Path, tmp_path: Path) -> None:
    model = Tokenizer(corpus_tokenizer)
    one = inspect_dataset(write_documents(tmp_path / "a\udcfe", [[300, 300, 301], [7], [8]]), None)
    two = inspect_dataset(write_documents(tmp_path / "b", [[5, 5, 40_000]]), None)
    tables = dataset_tables([one, two], model)
    assert tables["lengths.csv"][["length", "documents"]].to_numpy().tolist() == [[1, 2], [3, 1], [3, 1]]
    tokens = tables["tokens.csv"]
    assert tokens["id"].tolist() == [300, 7, 8, 301, 5, 40_000]
    assert tokens["count"].tolist() == [2, 1, 1, 1, 2, 1]
    assert tokens["piece"].tolist()[:5] == [model.piece(token) for token in (300, 7, 8, 301, 5)]
    assert tokens["piece"].isna().tolist() == [False] * 5 + [True]
    assert tokens.groupby("dataset")["share"].sum().round(12).tolist() == [1, 1]
    summary = tables["summary.csv"].set_index("dataset")
    assert summary.loc[f"{tmp_path}/a\\udcfe", "documents"] == 3  # names of files need not be text
    assert summary.loc[str(tmp_path / "b"), "length_50_percent"] == 3


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "begins"), [(".svg", b"<?xml"), (".png", b"\x89PNG")])
def test_tables_and_a_picture_as_files(suffix: str, begins: bytes, corpus_tokenizer: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    prefix = write_documents(tmp_path / ("a$\udcfe" * 60), [[300, 300, 301], [7]])
    words = ["--data-path", prefix, "--against", prefix, "--tokenizer", corpus_tokenizer]
    made = []
    for _ in range(2):
        exports = ["--tables", tmp_path / "tables", "--picture", tmp_path / f"p{suffix}"]
        done = command("data_prep", "inspect", *words, *exports)
        assert (done.returncode, "Warning" in done.stderr) == (0, False), done.stderr  # of axes without room
        made.append((tmp_path / f"p{suffix}").read_bytes())
    assert made[0] == made[1]
    assert made[0].startswith(begins)
    assert {path.name for path in (tmp_path / "tables").iterdir()} == {"summary.csv", "lengths.csv", "tokens.csv"}
    assert pd.read_csv(tmp_path / "tables" / "tokens.csv")["count"].tolist() == [2, 2, 1, 1, 1, 1]
    assert pd.read_csv(tmp_path / "tables" / "summary.csv")["tokens"].tolist() == [4, 4]


def test_what_cannot_be_written_is_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p.svg").write_text("the user's")
    (tmp_path / "tokens.csv").write_text("the user's")
    for option, place, complaint in (
        ("--picture", tmp_path / "p.jpg", "ends in .svg or .png"),
        ("--picture", tmp_path / "p.svg", "exists and is not a .svg picture"),
        ("--tables", tmp_path, "exists and is not such a table"),
    ):
        assert_refused(command("data_prep", "inspect", "--data-path", tmp_path / "none", option, place), complaint)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.figure", raising=False)
    with pytest.raises(InputError, match="--picture needs matplotlib: pip install matplotlib"):
        InspectDatasetCommand(data_path=tmp_path / "none", picture=tmp_path / "q.svg").run()
