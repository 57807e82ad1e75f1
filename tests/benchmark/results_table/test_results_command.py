"""``python -m benchmark results``."""

from pathlib import Path

import pandas
import pytest

from benchmark.commands.command_table import parse
from benchmark.results_table.results_command import tabulate_results
from stage.errors import InputError
from tests.benchmark.results_table.places import without_official_tools, write_round
from tests.benchmark.review.fixture import records, write_run


def test_systems_are_printed_and_all_rows_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_official_tools(monkeypatch)
    folder = write_round(tmp_path / "v4.1", ["BAD", "GOOD"])
    (folder / "BAD" / "results").rename(tmp_path / "elsewhere")
    files = {form: tmp_path / f"t{form}" for form in (".csv", ".parquet", ".xlsx")}
    assert tabulate_results([folder], files, None) == 0
    said = capsys.readouterr().out
    assert "acme_h100x512" in said
    assert f"{folder / 'BAD'}: no results of gpt3 in it" in said
    assert "1 system, 3 runs, 1 without results" in said
    assert len(pandas.read_csv(files[".csv"])) == len(pandas.read_parquet(files[".parquet"])) == 5


def test_a_file_that_is_no_log_beside_one_that_is_has_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_official_tools(monkeypatch)
    (tmp_path / "notes.txt").write_text("nothing")
    log = write_run(tmp_path / "run", records(1, evaluations=3))
    assert tabulate_results([tmp_path / "notes.txt", log], {}, None) == 0
    assert "2 systems, 2 runs" in capsys.readouterr().out


def test_bad_usage_is_one_line(tmp_path: Path) -> None:
    other = tmp_path / "bad.json"
    other.write_text('{"a": 1}')
    (tmp_path / "more.txt").write_text("")
    refused: tuple[tuple[list[Path], str], ...] = (
        ([], "no results given; name folders"),
        ([tmp_path / "nowhere"], "no such file or folder"),
        ([other], r"bad\.json: no MLLOG record in it; name result files, folders of runs or packages"),
        ([other, tmp_path / "more.txt"], r"bad\.json: no MLLOG record in it, nor in 1 more files"),
    )
    for arguments, complaint in refused:
        with pytest.raises(InputError, match=complaint):
            parse(["results", *map(str, arguments)]).run()
    with pytest.raises(InputError, match="a folder; --csv is the file to write"):
        tabulate_results([tmp_path], {".csv": tmp_path}, None)
