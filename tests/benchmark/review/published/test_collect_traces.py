"""The table is what the collector writes from published logs."""

from pathlib import Path

import pytest

from benchmark.review.published import collect_traces
from benchmark.review.published.collect_traces import collect, main, write_table
from benchmark.review.published.published_traces import TABLE, published_traces
from stage.errors import InputError
from tests.benchmark.review.fixture import SYSTEM, write_package
from tests.support import REPOSITORY

SHARED = REPOSITORY.parent / "shared" / "real_logs"


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/real_logs is not there")
@pytest.mark.slow
def test_published_logs_at_hand_give_their_rows(tmp_path: Path) -> None:
    for systems in SHARED.glob("v*/*/systems"):
        submitter = systems.parent
        (tmp_path / submitter.parent.name).mkdir(exist_ok=True)
        (tmp_path / submitter.parent.name / submitter.name).symlink_to(submitter)
    runs = set(collect(tmp_path))
    assert runs
    assert runs <= set(published_traces())


def test_table_is_written_as_it_is_read(tmp_path: Path) -> None:
    write_table(published_traces(), tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_bytes() == TABLE.read_bytes()


def test_rounds_folder_is_collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_package(tmp_path / "v4.1")
    monkeypatch.setattr(collect_traces, "TABLE", tmp_path / "t.csv")
    assert main([str(tmp_path)]) == 0
    (first, *_) = (tmp_path / "t.csv").read_text().splitlines()[1:]
    assert first.startswith(f"4.1,ACME,{SYSTEM},result_0.txt,ACME,ACME,ACME-H100-n64,NVIDIA H100-SXM5-80GB,512,2048,")


def test_what_is_no_round_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give the rounds' folder"):
        main([str(tmp_path)])
    with pytest.raises(InputError, match="expected one"):
        main([])
    package = write_package(tmp_path / "v4.1")
    (package / "systems" / f"{SYSTEM}.json").unlink()
    with pytest.raises(InputError, match="no system description"):
        main([str(tmp_path)])
