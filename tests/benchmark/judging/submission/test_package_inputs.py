"""What makes a submission and what does not, and what goes into it; names and descriptions are in test_package.py."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmark.judging.results.recorded_run import RecordedRun, read_recorded_run
from benchmark.judging.submission.package import copy_code, copy_evidence, write_manifests
from benchmark.judging.submission.package_inputs import notes_on_origin, require_evidence_holds, require_same_origin
from benchmark.run_record.evidence_chain import broken_links, read_chain
from benchmark.run_record.file_names import EVIDENCE_FILE
from benchmark.run_record.input_manifests import copy_manifests
from foundation.errors import InputError
from foundation.git import tracked_files
from tests.benchmark.judging.report.runs import MadeRun
from tests.benchmark.run_record.records import whole_run, write
from tests.support import REPOSITORY

CODE = [Path("loop.py")]
"""The file that made runs name in their records."""


def run_of(folder: Path, inputs: dict[str, Any], commit: str | None = None) -> RecordedRun:
    made = MadeRun(folder)
    made.begin()
    made.emit("inputs", inputs, mlperf=False)
    if commit is not None:
        made.emit("environment", {"commit": commit}, mlperf=False)
    return read_recorded_run(made.end())


def data(md5: str, manifest: object = "") -> dict[str, Any]:
    return {"/c4/data": {"manifest": str(manifest), "md5": {"data.bin": md5}}}


def test_code_without_tests_and_hidden_files(tmp_path: Path) -> None:
    copy_code(tmp_path, tracked_files())
    names = {path.name for path in tmp_path.iterdir()}
    assert {"benchmark", "foundation", "run_gpt3.sh", "requirements.lock"} <= names
    assert "tests" not in names
    assert (tmp_path / "docs" / "facts" / "mlperf_review.md").is_file()  # findings cite it
    assert not list(tmp_path.rglob(".*"))
    assert (tmp_path / "run_gpt3.sh").read_bytes() == (REPOSITORY / "run_gpt3.sh").read_bytes()
    assert (tmp_path / "run_gpt3.sh").stat().st_mode & 0o111


def test_manifests_of_each_run_and_of_the_stages_once(tmp_path: Path) -> None:
    manifest = tmp_path / "data.manifest.json"
    manifest.write_text('{"stage": "preprocess"}')
    runs = [run_of(tmp_path / str(number), data("5", manifest)) for number in range(3)]
    runs.append(run_of(tmp_path / "3", {}))
    for run in runs[:2]:
        copy_manifests(run.path.parent, [manifest, tmp_path / "missing.manifest.json"])
    folder = tmp_path / "manifests"
    names = ["inputs_of_result_0.json", "data.manifest.json", "inputs_of_result_1.json", "inputs_of_result_2.json"]
    assert write_manifests(folder, runs) == names
    assert json.loads((folder / names[0]).read_text()) == {"/c4/data": {"md5": {"data.bin": "5"}}}
    assert json.loads((folder / names[1]).read_text()) == {"stage": "preprocess"}
    assert write_manifests(tmp_path / "none", runs[3:]) == []
    assert not (tmp_path / "none").exists()


def test_evidence_is_carried_if_it_fits_its_log(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    write(run, whole_run())
    (run / "config.json").write_text('{"result_number": 0}')
    result = read_recorded_run(run)
    (line,) = require_evidence_holds([result])
    assert line.startswith(
        f"evidence of result_0: {read_chain(run / EVIDENCE_FILE).links[-1].record.step} steps, last dig"
    )
    copy_evidence(tmp_path / "evidence", [result])
    (path,) = (tmp_path / "evidence" / "result_0").iterdir()
    assert (path.name, broken_links(read_chain(path), result.path)) == (EVIDENCE_FILE, [])
    result.path.write_text(result.path.read_text() + "\n")
    with pytest.raises(
        InputError, match=r"line \d+, step \d+: SHA-256 of result_0\.txt.*; give the run as it was made"
    ):
        require_evidence_holds([result])
    (run / EVIDENCE_FILE).unlink()
    assert require_evidence_holds([result]) == []
    copy_evidence(tmp_path / "none", [result])
    assert not (tmp_path / "none").exists()


def test_runs_of_other_data_or_code_are_refused(tmp_path: Path) -> None:
    first, same, other = (run_of(tmp_path / name, data(name[0]), "c" * 40) for name in ("5a", "5b", "6"))
    require_same_origin([first, same], "c" * 40, CODE, other_code=False)
    with pytest.raises(InputError, match=r"data\.bin has MD5 6, but 5 in .*; the runs of a submission read the same"):
        require_same_origin([first, other], "c" * 40, CODE, other_code=True)
    with pytest.raises(InputError, match=f"made by commit {'c' * 40}, but the code to be packaged is None"):
        require_same_origin([first, same], None, CODE, other_code=False)
    unstamped = run_of(tmp_path / "7", {"/c4/data.bin": {"manifest": None}})
    require_same_origin([first, unstamped], "c" * 40, CODE, other_code=False)  # nothing is known to differ
    run = run_of(tmp_path / "run", {})
    with pytest.raises(InputError, match=r"result_0\.txt:1: written by loop\.py, which is no file of .* --other-code"):
        require_same_origin([run], None, [Path("other.py")], other_code=False)
    require_same_origin([run], None, [Path("other.py")], other_code=True)


def test_what_nobody_refuses_is_noted(tmp_path: Path) -> None:
    stamped, bare = run_of(tmp_path / "a", data("5"), "c"), run_of(tmp_path / "b", {})
    assert list(notes_on_origin([stamped], "c", other_code=False)) == []
    assert list(notes_on_origin([stamped, bare], "c-dirty", other_code=True)) == [
        f"no manifests of data and checkpoint: {bare.path} is not in the folder of its run",
        "the code packaged did not make these results; add the code that did",
        "the code packaged has changes that are in no commit; commit them and package again",
    ]
