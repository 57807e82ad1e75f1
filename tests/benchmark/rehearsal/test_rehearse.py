"""The rehearsal's own part; the whole of it is run by .ci/run."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmark.config.benchmarks import REHEARSAL
from benchmark.rehearsal.rehearse import _Rehearsal, rehearse, unigram_entropy
from data_prep.token_files.indexed_dataset import IndexedDatasetWriter
from foundation.errors import InputError
from tests.support import REPOSITORY, assert_refused, command


@pytest.mark.slow
def test_changed_file_stops_the_rehearsal_and_is_named(tmp_path: Path) -> None:
    work = tmp_path / "rehearsal"
    stages = _Rehearsal(REHEARSAL, work, work)
    prefixes = stages._prepare_data()
    assert [prefix.name for prefix in prefixes] == ["c4_en_6_c4_spm_text_document", "c4_en_7_c4_spm_text_document"]
    path = prefixes[1].with_name(f"{prefixes[1].name}.bin")
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    done = command("benchmark", "rehearse", "--work-dir", work)
    assert done.returncode == 2
    assert f"{path}: its MD5 is another, so somebody changed it since; remove it yourself" in done.stderr
    assert "stopped at 'tokenise'" in done.stdout
    assert not (work / "run_0").exists()


def test_text_that_is_not_there_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    done = command("benchmark", "rehearse", "--c4-path", tmp_path / "none", "--work-dir", tmp_path / "work")
    assert_refused(done, "none: expected en/c4-train.*.json.gz and c4-validation*.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, "seed -1: expected 0 to"),
        ({"seed": 1 << 32}, "change --seed"),
        ({"master_port": 99999}, "port 99999: expected 1 to 65535"),
    ],
)
def test_what_the_run_would_refuse_is_refused_before_any_stage(
    options: dict[str, int], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        rehearse(REHEARSAL, tmp_path / "work", seed=options.get("seed"), master_port=options.get("master_port"))
    assert not (tmp_path / "work").exists()


def test_unfinished_run_is_continued_and_finished_ones_are_kept(tmp_path: Path) -> None:
    stages = _Rehearsal(REHEARSAL, tmp_path, tmp_path)
    assert stages._next_run() == (tmp_path / "run_0", 0)
    for number in (0, 1):
        (tmp_path / f"run_{number}").mkdir()
        (tmp_path / f"run_{number}" / "summary.json").write_text(json.dumps({}))
    (tmp_path / "run_2").mkdir()
    assert stages._next_run() == (tmp_path / "run_2", 2)


@pytest.mark.parametrize("work_dir", ["runs/small", "runs/small/.."])
def test_printed_commands_name_the_folder_of_other_text(
    work_dir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("en/c4-train.00000-of-00001.json.gz", "c4-validation.json"):
        (tmp_path / "c4" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "c4" / name).touch()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "small").mkdir(parents=True)
    commands = list[list[str]]()

    def fail(words: list[str]) -> int:
        commands.append(words)
        return 1

    monkeypatch.setattr("benchmark.rehearsal.rehearse.run_module", fail)
    assert rehearse(REHEARSAL, Path(work_dir), c4_path=tmp_path / "c4") == 1
    output = Path(commands[0][commands[0].index("--output") + 1])
    words = capsys.readouterr().out.splitlines()[2].split()
    assert Path(words[words.index("--output") + 1]).resolve() == output


def test_unigram_entropy(tmp_path: Path) -> None:
    with IndexedDatasetWriter(tmp_path / "x", np.dtype("<u2")) as writer:
        writer.append(np.array([1, 1, 2, 9]), [1, 3])
    assert unigram_entropy(tmp_path / "x") == pytest.approx(1.5 * math.log(2))


def test_committed_sums_leave_out_what_versions_of_pytorch_write_differently() -> None:
    listed = (REPOSITORY / "checksums" / "rehearsal_checkpoint_bf16.md5").read_text()
    assert listed.count("\n") == 6721
    assert "common.pt" not in listed
    assert "metadata.json" in listed
