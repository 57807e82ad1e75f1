"""Tables of what datasets hold."""

from pathlib import Path

import pandas as pd

from data_prep.inspection.dataset_tables import dataset_tables
from data_prep.inspection.inspect_dataset import inspect_dataset
from data_prep.tokenizing.tokenizer import Tokenizer
from tests.data_prep.datasets import write_documents
from tests.support import command


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


def test_tables_as_files(corpus_tokenizer: Path, tmp_path: Path) -> None:
    prefix = write_documents(tmp_path / "a", [[300, 300, 301], [7]])
    words = ["--data-path", prefix, "--tokenizer", corpus_tokenizer, "--tables", tmp_path / "tables"]
    done = command("data_prep", "inspect", *words)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "tables").iterdir()} == {"summary.csv", "lengths.csv", "tokens.csv"}
    assert pd.read_csv(tmp_path / "tables" / "tokens.csv")["count"].tolist() == [2, 1, 1]
    assert pd.read_csv(tmp_path / "tables" / "summary.csv")["tokens"].tolist() == [4]
