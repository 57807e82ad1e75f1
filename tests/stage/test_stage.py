"""Errors, publishing, manifests, locks: what every stage relies on."""

import multiprocessing
import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

import stage.lock
from stage.cli import one_line_usage_error
from stage.dependencies import missing
from stage.errors import CheckFailed, InputError, run_command
from stage.lock import only_one_in
from stage.manifest import is_current, read_manifest, record_of, require_intact, write_manifest
from stage.publish import partial_path, published_file, published_folder, write_text


@pytest.mark.parametrize(
    ("raised", "status", "message"),
    [
        (InputError("file.json:3: not\na JSON object"), 2, "error: file.json:3: not a JSON object\n"),
        (CheckFailed("a.bin differs"), 1, "error: a.bin differs\n"),
        (PermissionError(13, "Permission denied", "/data/x"), 2, "error: /data/x: Permission denied\n"),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
    ],
)
def test_errors_are_one_line_and_a_status(
    raised: BaseException, status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> int:
        raise raised

    with pytest.raises(SystemExit) as leaving:
        run_command(command)
    assert leaving.value.code == status
    assert capsys.readouterr().err == message


def test_our_own_bugs_keep_their_traceback() -> None:
    def command() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_command(command)


def test_usage_errors_are_one_line() -> None:
    import tyro

    @dataclass
    class Options:
        size: int

    with pytest.raises(InputError, match=r"--size.*\(see --help\)") as error:
        one_line_usage_error(lambda: tyro.cli(Options, args=["--size", "x"]))
    assert "\n" not in str(error.value)
    assert one_line_usage_error(lambda: tyro.cli(Options, args=["--size", "3"])) == Options(3)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError), published_file(path) as partial:
        partial.write_text("half of the n")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    partial_path(path).mkdir()
    (partial_path(path) / "left by a killed attempt").touch()
    with pytest.raises(RuntimeError), published_folder(path) as partial:
        (partial / "a").touch()
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with published_folder(path) as partial:
        (partial / "a").touch()
        assert not path.exists()
    assert [entry.name for entry in path.iterdir()] == ["a"]


def _write_output(folder: Path) -> tuple[Path, Path]:
    source, output = folder / "in.txt", folder / "out.txt"
    source.write_text("in")
    output.write_text("out")
    write_manifest(
        output,
        stage="copy",
        options={"mode": 1},
        inputs=[record_of(source, str(source), "13b5bfe96f3e2fe411c9f66f4a582adf")],
        outputs=[record_of(output, "out.txt", None)],
        packages=["numpy"],
        started=time.monotonic(),
    )
    return source, output


def test_manifest_says_what_was_made_of_what(tmp_path: Path) -> None:
    source, output = _write_output(tmp_path)
    manifest = read_manifest(output)
    assert manifest is not None
    assert manifest.inputs[0].name == str(source)
    assert manifest.outputs[0].bytes == 3
    assert "numpy" in manifest.versions
    assert is_current(output, stage="copy", options={"mode": 1}, inputs=[source])


def test_manifest_notices_other_options_inputs_and_outputs(tmp_path: Path) -> None:
    source, output = _write_output(tmp_path)
    assert not is_current(output, stage="copy", options={"mode": 2}, inputs=[source])
    assert not is_current(output, stage="copy", options={"mode": 1}, inputs=[output])
    os.utime(source, (1, 1))  # copied elsewhere and back: same contents
    assert is_current(output, stage="copy", options={"mode": 1}, inputs=[source])
    source.write_text("IN")
    assert not is_current(output, stage="copy", options={"mode": 1}, inputs=[source])
    output.write_text("truncated"[:2])
    with pytest.raises(InputError, match=r"out\.txt: 1 files of 2 bytes, but .* says 1 files of 3 bytes"):
        require_intact(output)
    output.unlink()
    with pytest.raises(InputError, match=r"out\.txt: missing"):
        require_intact(output)


def test_damaged_manifest_is_named(tmp_path: Path) -> None:
    _, output = _write_output(tmp_path)
    (tmp_path / "out.txt.manifest.json").write_text("{")
    with pytest.raises(InputError, match=r"out\.txt\.manifest\.json: not a manifest"):
        require_intact(output)
    assert require_intact(tmp_path / "never made") is None


def _hold(
    folder: Path, ready: "multiprocessing.synchronize.Event", release: "multiprocessing.synchronize.Event"
) -> None:
    with only_one_in(folder, "wait"):
        ready.set()
        release.wait(30)


def test_only_one_process_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = multiprocessing.get_context("fork")
    ready, release = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(tmp_path, ready, release))
    holder.start()
    assert ready.wait(30)
    monkeypatch.setattr(stage.lock, "PATIENCE_S", 0.3)
    with (
        pytest.raises(InputError, match="in use by another process; choose another"),
        only_one_in(tmp_path, "choose another folder"),
    ):
        pass
    monkeypatch.setattr(stage.lock, "PATIENCE_S", 30.0)
    release.set()
    with only_one_in(tmp_path, "choose another folder"):  # waits for the other one to end
        holder.join()


def test_this_environment_has_what_pyproject_asks_for() -> None:
    assert missing("dev") == []
