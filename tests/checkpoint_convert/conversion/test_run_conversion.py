"""A conversion that is killed, fails, or meets another one: it goes on to the same bytes, and nothing is half there."""

import json
import os
import resource
import shutil
import signal
from pathlib import Path

import pytest

from checkpoint_convert.conversion.journal import Journal
from checkpoint_convert.conversion.paxml_to_megatron import paxml_to_megatron
from checkpoint_convert.conversion.random_paxml import ModelSizes, write_random_paxml
from checksums.md5_list import digest_folder, read_list
from stage.errors import InputError
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

    def note_and_die(journal: Journal, name: str, md5: str, size: int) -> None:
        note(journal, name, md5, size)
        if len(journal.digests) >= files:
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
    output, journal = tmp_path / "out", tmp_path / "out.journal"
    files = int(share * len(expected))
    process = fork_server().Process(target=convert_until_killed, args=(paxml, output, files))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert not output.exists()
    noted = journal.read_text().count("\n") - 1
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
    files = sorted((tmp_path / "out.partial").glob("language_model.encoder.layers.mlp.dense_h_to_4h.weight/*"))
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


def test_a_journal_of_something_else_is_not_used(paxml: Path, tmp_path: Path) -> None:
    (tmp_path / "out.partial" / "language_model.embedding.word_embeddings.weight").mkdir(parents=True)
    (tmp_path / "out.journal").write_text('{"stage": "paxml-to-megatron"}\n0123 4 language_model.x/0.0\n')
    converted = paxml_to_megatron(paxml, tmp_path / "out", dtype="fp32", workers=2, memory_limit=GIB)
    assert converted is not None
    assert converted.resumed_files == 0


@pytest.mark.slow
def test_disk_full_leaves_what_can_be_continued(paxml: Path, expected: dict[str, str], tmp_path: Path) -> None:
    words = [str(word) for word in convert_words(paxml, tmp_path / "out")]
    done = run_forked(convert_with_small_files, words, folder=REPOSITORY, timeout=60)  # not the position table
    assert_refused(done, "make room and run the command again")
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "out.journal").exists()
    converted = paxml_to_megatron(paxml, tmp_path / "out", dtype="bf16", workers=2, memory_limit=GIB)
    assert converted is not None
    assert converted.resumed_files > 0
    assert {**read_list(tmp_path / "out.md5"), "common.pt": ""} == {**expected, "common.pt": ""}


def test_two_at_once_are_refused(paxml: Path, tmp_path: Path) -> None:
    first = Journal(tmp_path / "out.journal", tmp_path / "out.partial", {})
    second = command(*convert_words(paxml, tmp_path / "out"))
    assert_refused(second, "another conversion is writing it")
    first.close()


def test_output_that_holds_the_source_is_not_replaced(paxml: Path, tmp_path: Path) -> None:
    source = tmp_path / "folder" / "source"
    shutil.copytree(paxml, source)
    for output in (source, tmp_path / "folder"):
        with pytest.raises(InputError, match="holds the input"):
            paxml_to_megatron(source, output, dtype="fp32", workers=1, memory_limit=GIB, force=True)
    assert digest_folder(source) == digest_folder(paxml)
