"""Private files and texts that a package must not publish."""

import dataclasses
import json
import os
import typing
from pathlib import Path
from typing import Any

import pytest

from benchmark.config.run_config import RunConfig
from benchmark.judging.results.recorded_run import RecordedRun, read_recorded_run
from benchmark.judging.submission.package import copy_code, copy_evidence, write_configs, write_manifests
from benchmark.judging.submission.package_inputs import read_results
from benchmark.judging.submission.published_files import (
    LEFT_OUT,
    PUBLISHED_TEXTS,
    copy_inside,
    json_inside,
    published_config,
    without_addresses,
)
from benchmark.run_record.input_manifests import copied_manifests, copy_manifests
from foundation.errors import InputError
from model.gpt3_config import GPT3Config
from model.llama31_config import Llama31Config
from tests.benchmark.judging.report.runs import MadeRun

SECRET = "hf_abcdefgh0123"


def recorded(folder: Path, inputs: dict[str, Any]) -> RecordedRun:
    run = MadeRun(folder)
    run.begin()
    run.emit("inputs", inputs, mlperf=False)
    return read_recorded_run(run.end())


def contents(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.rglob("*") if path.is_file())


def test_manifests_named_by_events_are_not_published(tmp_path: Path) -> None:
    private = tmp_path / "diary.manifest.json"
    private.write_text(json.dumps({"token": SECRET}))
    private.chmod(0o600)
    run = recorded(tmp_path / "run", {"/c4/data": {"manifest": str(private), "md5": {"data.bin": "5"}, "x": SECRET}})
    assert write_manifests(tmp_path / "package", [run]) == ["inputs_of_result_0.json"]
    assert SECRET not in contents(tmp_path / "package")
    assert "diary" not in contents(tmp_path / "package")


@pytest.mark.parametrize("linked", ["file", "folder"])
def test_links_in_the_run_folder_are_refused(tmp_path: Path, linked: str) -> None:
    private = tmp_path / "private"
    private.mkdir()
    (private / "data.manifest.json").write_text(json.dumps(SECRET))
    run = recorded(tmp_path / "run", {"/c4/data": {"md5": {"data.bin": "5"}}})
    manifests = tmp_path / "run" / "manifests"
    if linked == "folder":
        manifests.symlink_to(private)
    else:
        manifests.mkdir()
        (manifests / "data.manifest.json").symlink_to(private / "data.manifest.json")
    with pytest.raises(InputError, match=r"is a link; a package holds files of the run's folder alone"):
        write_manifests(tmp_path / "package", [run])
    assert SECRET not in contents(tmp_path / "package")


def test_linked_configuration_evidence_and_log_are_refused(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", {})
    folder = run.path.parent
    (tmp_path / "private").write_text(SECRET)
    (folder / "evidence.jsonl").symlink_to(tmp_path / "private")
    with pytest.raises(InputError, match=r"evidence\.jsonl is a link"):
        copy_evidence(tmp_path / "evidence", [run])
    (folder / "config.json").rename(tmp_path / "config.json")
    (folder / "config.json").symlink_to(tmp_path / "config.json")
    with pytest.raises(InputError, match=r"config\.json is a link"):
        write_configs(tmp_path / "configs", [run])
    log = folder / "result_0.txt"
    log.rename(tmp_path / "result_0.txt")
    log.symlink_to(tmp_path / "result_0.txt")
    with pytest.raises(InputError, match=r"result_0\.txt: a link; a package holds files of the runs' folders alone"):
        read_results([folder])
    assert SECRET not in contents(tmp_path / "evidence")


def test_pipes_folders_and_names_outside_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, kind in (("pipe", "pipe"), ("folder", "folder")):
        with pytest.raises(InputError, match=f"{name} is a {kind}"):
            copy_inside(tmp_path, name, target=tmp_path / "copy")
    for name in ("..", ".", "", "folder/../pipe", "/etc/passwd"):
        with pytest.raises(InputError, match="not a name in"):
            copy_inside(tmp_path, name, target=tmp_path / "copy")
    assert not copy_inside(tmp_path, "missing", target=tmp_path / "copy")
    assert not copy_inside(tmp_path, "missing", "missing", target=tmp_path / "copy")
    (tmp_path / "long").write_text('"' + "x" * 100 + '"')
    with pytest.raises(InputError, match="long: more than 50 bytes"):
        json_inside(tmp_path, "long", largest_bytes=50)


def test_commands_addresses_and_tokens_of_a_configuration_are_left_out(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", {})
    path = run.path.with_name("config.json")
    config = {
        **json.loads(path.read_text()),
        "run_dir": f"/home/{SECRET}",
        "checkpoints": {"save_interval": 16, "after_checkpoint": f"upload --token {SECRET}", "save_at": [1, 2]},
        "logging": {"wandb": "online", "prometheus_textfile": f"/{SECRET}.prom", "evidence": True, "key": SECRET},
        "data": {"seed": 5, "checkpoint": f"https://user:{SECRET}@host/ckpt", "train_data_path": ["0.5", "/c4/data"]},
        "guards": {"audit_interval": 100, "notes": [SECRET, 3, {"deep": SECRET}]},
        "future": {"token": SECRET},
    }
    path.write_text(json.dumps(config))
    write_configs(tmp_path / "configs", [run])
    published = json.loads((tmp_path / "configs" / "result_0" / "config.json").read_text())
    assert SECRET not in json.dumps(published)
    assert published["checkpoints"] == {"save_interval": 16, "save_at": [1, 2]}
    assert published["data"] == {"seed": 5, "checkpoint": LEFT_OUT, "train_data_path": ["0.5", "/c4/data"]}
    assert published["guards"] == {"audit_interval": 100, "notes": [3, {}]}
    assert published["system"] == config["system"]
    assert "future" not in published
    assert published_config({}) == {}


def test_addresses_in_manifests_are_left_out(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", {"/c4/data": {"md5": {"data.bin": "5"}}})
    manifest = tmp_path / "ckpt.manifest.json"
    manifest.write_text(json.dumps({"inputs": [{"name": f"gs://bucket?sig={SECRET}", "files": 3}]}))
    copy_manifests(run.path.parent, [manifest])
    write_manifests(tmp_path / "package", [run])
    published = json.loads((tmp_path / "package" / "ckpt.manifest.json").read_text())
    assert published == {"inputs": [{"name": LEFT_OUT, "files": 3}]}
    assert without_addresses({f"s3://{SECRET}": 1}) == {LEFT_OUT: 1}


def test_two_manifests_of_one_name_are_both_copied(tmp_path: Path) -> None:
    paths = [tmp_path / name / "data.manifest.json" for name in "abc"]
    for path, content in zip(paths, ("1", "2", "1"), strict=True):
        path.parent.mkdir()
        path.write_text(content)
    run = tmp_path / "run"
    run.mkdir()
    copy_manifests(run, paths)
    assert copied_manifests(run) == ["data.2.manifest.json", "data.manifest.json"]
    assert copied_manifests(tmp_path) == []


def test_links_in_the_code_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    (tmp_path / "private").write_text(SECRET)
    (repository / "link.py").symlink_to(tmp_path / "private")
    (repository / "code.py").write_text("pass\n")
    monkeypatch.setattr("benchmark.judging.submission.package.REPOSITORY", repository)
    copy_code(tmp_path / "package", [Path("link.py"), Path("code.py")])
    assert [path.name for path in (tmp_path / "package").iterdir()] == ["code.py"]


PRIVATE_TEXTS = {
    "run_dir", "data_folder", "after_checkpoint", "prometheus_textfile", "wandb", "profile", "nccl_debug",
}  # fmt: skip


def text_fields(kind: Any) -> set[str]:
    """The names of the fields below a type whose values can be texts."""
    names: set[str] = set()
    for inner in typing.get_args(kind):
        names |= text_fields(inner)
    if dataclasses.is_dataclass(kind):
        for name, hint in typing.get_type_hints(kind).items():
            leaves = str(hint)
            if any(word in leaves for word in ("str", "Path", "Literal")) and not dataclasses.is_dataclass(hint):
                names.add(name)
            names |= text_fields(hint)
    return names


def test_each_text_of_a_configuration_is_published_or_private() -> None:
    """A field that is new must be put into one of the two lists."""
    fields = text_fields(RunConfig) | text_fields(GPT3Config) | text_fields(Llama31Config)
    assert fields >= {"after_checkpoint", "precision", "train_data_path", "lr_schedule", "copy_engines"}
    assert fields - PUBLISHED_TEXTS - PRIVATE_TEXTS == set()
