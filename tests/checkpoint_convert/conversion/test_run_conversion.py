"""A conversion that is killed, fails, or meets another one: it goes on to the same bytes, and nothing is half there."""

import json
import os
import resource
import shutil
import signal
from pathlib import Path

import pytest

import stage.lock
from checkpoint_convert.conversion.paxml_to_megatron import paxml_to_megatron
from checkpoint_convert.conversion.random_paxml import ModelSizes, write_random_paxml
from checkpoint_convert.conversion.resuming import unfinished as module
from checkpoint_convert.conversion.resuming.journal import Journal, WrittenFile, read_journals
from checksums.md5_list import digest_folder, read_list
from stage.errors import InputError
from stage.lock import only_one_in
from stage.manifest import manifest_path
from stage.task_shard import TaskShard
from tests.checkpoint_convert.tiny import GIB
from tests.forked import fork_server, run_forked, run_module
from tests.support import REPOSITORY, assert_refused, command


@pytest.fixture(scope="module")
def paxml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paxml") / "checkpoint"
    write_random_paxml(folder, seed=1, sizes=ModelSizes(layers=3, hidden=36, heads=4, vocab=256))
    return folder


@pytest.fixture(scope="module")
def expected(paxml: Path) -> dict[str, str]:
    output = paxml.parent / "expected"
    paxml_to_megatron(paxml, output, dtype="bf16", workers=1, memory_limit=GIB)
    return read_list(output.with_name("expected.md5"))


def test_list_is_that_of_the_files(paxml: Path, expected: dict[str, str]) -> None:
    assert expected == digest_folder(paxml.parent / "expected")


def convert_words(paxml: Path, output: Path) -> list[object]:
    return ["checkpoint_convert", "paxml-to-megatron", "--input", paxml, "--output", output, "--dtype", "bf16"]


def convert_until_killed(paxml: Path, output: Path, files: int) -> None:
    """Convert; once so many files are noted, the process is killed, wherever its threads are."""
    note = Journal.note

    def note_and_die(journal: Journal, name: str, written: WrittenFile) -> None:
        note(journal, name, written)
        if len(journal.written) >= files:
            os.kill(os.getpid(), signal.SIGKILL)

    Journal.note = note_and_die  # type: ignore[assignment, method-assign]
    paxml_to_megatron(paxml, output, dtype="bf16", workers=2, memory_limit=GIB)


def convert_with_small_files(words: list[str]) -> None:
    """The command where no file can have more than 30 KiB, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (30 << 10, 30 << 10))
    run_module(words)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_killed_and_run_again(share: float, paxml: Path, expected: dict[str, str], tmp_path: Path) -> None:
    output, journal = tmp_path / "out", tmp_path / "out.partial" / "whole.journal"
    files = int(share * len(expected))
    process = fork_server().Process(target=convert_until_killed, args=(paxml, output, files))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert not output.exists()
    noted = journal.read_text().count("\n")
    assert noted >= files
    with journal.open("a") as file:
        file.write("0123456789abcdef 12 a line that the kill has cut sh")
    other_cut = ["--workers", 1, "--memory-limit", "2MB", "--json"]
    done = command(*convert_words(paxml, output), *other_cut)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["resumed_files"] == noted
    found = digest_folder(output)
    assert {name: md5 for name, md5 in found.items() if name != "common.pt"} == {
        name: md5 for name, md5 in expected.items() if name != "common.pt"
    }
    assert read_list(tmp_path / "out.md5") == found
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.manifest.json", "out.md5"]


@pytest.mark.slow
def test_a_file_that_was_lost_is_written_again(paxml: Path, expected: dict[str, str], tmp_path: Path) -> None:
    broken = tmp_path / "source"
    shutil.copytree(paxml, broken)
    last = broken / "opt_states_0.p#96#i-1_2.v.params.lm.transformer.repeat.sub.x_layers_0.ff_layer.ffn_layer2.bias.b"
    (last / "0.0").write_bytes(b"damaged")
    with pytest.raises(InputError, match="a chunk cannot be read"):
        paxml_to_megatron(broken, tmp_path / "out", dtype="bf16", workers=1, memory_limit=GIB)
    files = sorted((tmp_path / "out.partial" / "files").glob("*/*"))
    files[3].unlink()
    files[5].write_bytes(files[5].read_bytes()[:-100])
    stat = (paxml / last.name / "0.0").stat()
    (last / "0.0").write_bytes((paxml / last.name / "0.0").read_bytes())
    os.utime(last / "0.0", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    converted = paxml_to_megatron(broken, tmp_path / "out", dtype="bf16", workers=1, memory_limit=GIB)
    assert converted is not None
    found = read_list(tmp_path / "out.md5")
    assert {**found, "common.pt": ""} == {**expected, "common.pt": ""}
    assert digest_folder(tmp_path / "out") == found


def test_what_was_begun_for_something_else_is_not_gone_on_with(paxml: Path, tmp_path: Path) -> None:
    """An older conversion, of other options, that was stopped."""
    with pytest.raises(InputError):
        paxml_to_megatron_stopped(paxml, tmp_path / "out", "bf16")
    assert read_journals(tmp_path / "out.partial")
    converted = paxml_to_megatron(paxml, tmp_path / "out", dtype="fp32", workers=2, memory_limit=GIB)
    assert converted is not None
    assert converted.resumed_files == 0
    assert read_list(tmp_path / "out.md5") == digest_folder(tmp_path / "out")


def paxml_to_megatron_stopped(paxml: Path, output: Path, dtype: str) -> None:
    """A conversion that ends with an error after some files."""
    with pytest.MonkeyPatch.context() as patch:
        note = Journal.note

        def note_some(journal: Journal, name: str, written: WrittenFile) -> None:
            if len(journal.written) >= 20:
                raise InputError("stopped")
            note(journal, name, written)

        patch.setattr(Journal, "note", note_some)
        paxml_to_megatron(paxml, output, dtype=dtype, workers=2, memory_limit=GIB)


@pytest.mark.slow
def test_disk_full_leaves_what_can_be_continued(paxml: Path, expected: dict[str, str], tmp_path: Path) -> None:
    words = [str(word) for word in convert_words(paxml, tmp_path / "out")]
    done = run_forked(convert_with_small_files, words, folder=REPOSITORY, timeout=60)  # not the position table
    assert_refused(done, "make room and run the command again")
    assert not (tmp_path / "out").exists()
    assert read_journals(tmp_path / "out.partial")
    converted = paxml_to_megatron(paxml, tmp_path / "out", dtype="bf16", workers=2, memory_limit=GIB)
    assert converted is not None
    assert converted.resumed_files > 0
    assert {**read_list(tmp_path / "out.md5"), "common.pt": ""} == {**expected, "common.pt": ""}


def test_two_at_once_are_refused(paxml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage.lock, "PATIENCE_S", 0.3)
    with pytest.raises(InputError, match="stopped"):
        paxml_to_megatron_stopped(paxml, tmp_path / "out", "bf16")
    for name, shard, dtype in (
        ("whole", None, "bf16"),
        ("whole", TaskShard(0, 2), "bf16"),
        ("shard-0-of-2", TaskShard(0, 2), "bf16"),
        ("shard-0-of-2", None, "bf16"),
        ("shard-0-of-2", None, "fp32"),  # would begin anew
    ):
        with (
            only_one_in(tmp_path / "out.partial", "", name=f"{name}.lock"),
            pytest.raises(InputError, match="another conversion is writing it; wait for it to end"),
        ):
            paxml_to_megatron(paxml, tmp_path / "out", dtype=dtype, workers=1, memory_limit=GIB, shard=shard)
    with only_one_in(tmp_path / "out.partial", "", name="shard-0-of-2.lock"):
        paxml_to_megatron(paxml, tmp_path / "out", dtype="bf16", workers=1, memory_limit=GIB, shard=TaskShard(1, 2))


def test_output_that_holds_the_source_is_not_replaced(paxml: Path, tmp_path: Path) -> None:
    source = tmp_path / "folder" / "source"
    shutil.copytree(paxml, source)
    for output in (source, tmp_path / "folder"):
        for force in (True, False):
            with pytest.raises(InputError, match="holds the input"):
                paxml_to_megatron(source, output, dtype="fp32", workers=1, memory_limit=GIB, force=force)
    assert digest_folder(source) == digest_folder(paxml)
    bystander = tmp_path / "mine"
    bystander.mkdir()
    (bystander / "file").touch()
    with pytest.raises(InputError, match="no manifest says what it is"):
        paxml_to_megatron(source, bystander, dtype="fp32", workers=1, memory_limit=GIB, force=True)
    assert (bystander / "file").exists()


def test_shards_are_joined_to_the_same_bytes(paxml: Path, expected: dict[str, str], tmp_path: Path) -> None:
    files = []
    for index in (2, 0):  # the last is left to the join
        done = command(*convert_words(paxml, tmp_path / "out"), "--shard", f"{index}/3", "--json")
        assert done.returncode == 0, done.stderr
        files.append(json.loads(done.stdout)["files"])
    assert not (tmp_path / "out").exists()
    assert min(files) > len(expected) / 10
    partial = tmp_path / "out.partial" / "files"
    zeroed = max((path for path in partial.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    zeroed.write_bytes(bytes(zeroed.stat().st_size))  # as after a crash of a machine
    (zeroed.parent / f"{zeroed.name}.00000000-1-0.partial").write_bytes(b"half of a file")
    done = command(*convert_words(paxml, tmp_path / "out"), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["resumed_files"] == sum(files) - 1
    found = read_list(tmp_path / "out.md5")
    assert {**found, "common.pt": ""} == {**expected, "common.pt": ""}
    assert found == digest_folder(tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.manifest.json", "out.md5"]
    again = command(*convert_words(paxml, tmp_path / "out"), "--shard", "1/3")
    assert (again.returncode, "already made" in again.stdout) == (0, True)


def test_it_goes_on_with_its_source_moved(paxml: Path, expected: dict[str, str], tmp_path: Path) -> None:
    shutil.copytree(paxml, tmp_path / "before")
    for name, shard in (("before", TaskShard(0, 2)), ("moved", None)):
        if name == "moved":
            (tmp_path / "before").rename(tmp_path / name)
        done = paxml_to_megatron(
            tmp_path / name, tmp_path / "out", dtype="bf16", workers=1, memory_limit=GIB, shard=shard
        )
    assert done is not None
    assert 0 < done.resumed_files < done.files
    assert read_list(tmp_path / "out.md5") == expected


@pytest.mark.parametrize("when", ["read", "end", "gone"])
def test_a_source_that_changes_meanwhile_is_not_published(
    when: str, paxml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    shutil.copytree(paxml, source)
    last = source / "opt_states_0.p#96#i-1_2.v.params.lm.transformer.repeat.sub.x_layers_0.ff_layer.ffn_layer2.bias.b"
    note = Journal.note

    def change_and_note(journal: Journal, name: str, written: WrittenFile) -> None:
        note(journal, name, written)
        if len(journal.written) == (200 if when == "end" else 5):
            chunk = min(path for path in last.iterdir() if path.name[0].isdigit())
            if when == "gone":
                chunk.unlink()
            else:
                before = chunk.stat()
                chunk.write_bytes(bytes(len(chunk.read_bytes())))
                os.utime(chunk, ns=(before.st_atime_ns, before.st_mtime_ns))

    monkeypatch.setattr(Journal, "note", change_and_note)
    with pytest.raises(InputError, match="is missing" if when == "gone" else "changed while it was converted"):
        paxml_to_megatron(source, tmp_path / "out", dtype="fp32", workers=1, memory_limit=GIB)
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.md5").exists()


def test_a_source_that_is_not_what_its_manifest_says_is_refused(paxml: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(paxml, source)
    text = manifest_path(paxml).read_text()
    manifest_path(source).write_text(text.replace(f'"name": "{paxml.name}"', '"name": "source"'))
    array = source / "mdl_vars.params.lm.final_ln.bias"
    chunk = min(path for path in array.iterdir() if path.name[0].isdigit())
    data = chunk.read_bytes()
    chunk.write_bytes(bytes(len(data)))
    words = convert_words(source, tmp_path / "out")
    assert_refused(command(*words, "--verify-input"), "but source.manifest.json says")
    chunk.write_bytes(data + b"x")
    assert_refused(command(*words), "source.manifest.json says")


def test_killed_between_folder_and_manifest_is_finished(
    paxml: Path, expected: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for force in (False, True):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(module, "_finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            paxml_to_megatron(paxml, tmp_path / "out", dtype="bf16", workers=2, memory_limit=GIB, force=force)
        assert paxml_to_megatron(paxml, tmp_path / "out", dtype="bf16", workers=2, memory_limit=GIB) is None
        assert {**read_list(tmp_path / "out.md5"), "common.pt": ""} == {**expected, "common.pt": ""}
        assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.manifest.json", "out.md5"]
