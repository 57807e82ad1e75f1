"""fetch: from a hub, from a folder, and what is never left behind."""

import gzip
import hashlib
import json
import os
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from sentencepiece import sentencepiece_model_pb2

from data_prep.preparation import artifacts
from data_prep.preparation.artifact_table import artifact_rows, require_all
from data_prep.preparation.artifacts import ARTIFACTS, LLAMA31_DATASET_BYTES, needed_files
from data_prep.preparation.fetch import fetch
from foundation.errors import CheckFailed, InputError
from foundation.outputs.digest import md5_file
from foundation.outputs.manifest import read_manifest
from tests.data_prep.fake_hub import COMMITS, FILES, NAMES, FakeHub, all_files, fake_hub, fetched
from tests.support import assert_refused, command, forked_command, write_dataset


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    pytest.importorskip("huggingface_hub")
    with fake_hub(dict(FILES)) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        yield server


def test_files_of_the_hub_are_fetched_once(hub: FakeHub, tmp_path: Path) -> None:
    output = tmp_path / "c4"
    done = fetched(output)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert all_files(output) == NAMES
    assert {name: (output / name).read_bytes() for name in NAMES} == FILES
    assert hub.downloads == NAMES
    for name in NAMES:
        manifest = read_manifest(output / name)
        assert manifest is not None
        assert manifest.options == {"repository": "allenai/c4", "commit": COMMITS["main"]}
        assert [source.identity for source in manifest.inputs] == [f"sha256:{hub.announced[name]}"]
        assert [record.md5 for record in manifest.outputs] == [md5_file(output / name)]
    hub.requests.clear()
    again = fetched(output)
    assert again.returncode == 0, again.stderr
    assert hub.requests == []
    assert re.search(r"train +3 +3 ", again.stdout)


def test_another_revision_is_never_told_of_old_files(hub: FakeHub, tmp_path: Path) -> None:
    """Fault: the old commit's shards stayed, and were labelled with the new one. Later files are of the same commit."""
    output = tmp_path / "c4"
    shard = ["--output", output, "--what", "train", "--shards", "768", "--revision", "older"]
    assert forked_command("data_prep", "fetch", *shard).returncode == 0
    assert fetched(output).returncode == 0
    assert all("/resolve/" + COMMITS["older"] in path for _, path in hub.requests if "/resolve/" in path)
    new = gzip.compress(b'{"text": "new"}\n', mtime=0)
    hub.files[NAMES[0]], hub.announced[NAMES[0]] = new, hashlib.sha256(new).hexdigest()
    same = ["--output", output, "--what", "train", "--shards", "769", "--revision", "main"]
    assert forked_command("data_prep", "fetch", *same).returncode == 0  # no byte is another in the new commit
    manifest = read_manifest(output / NAMES[1])
    assert manifest is not None and manifest.options["commit"] == COMMITS["main"]
    assert manifest.outputs[0].md5 == md5_file(output / NAMES[1])
    refused = fetched(output, "--revision", "main")
    assert_refused(refused, "was made otherwise (commit is aaaa", "not bbbb", "--force")
    assert (output / NAMES[0]).read_bytes() == FILES[NAMES[0]]
    assert fetched(output, "--revision", "main", "--force").returncode == 0
    assert (output / NAMES[0]).read_bytes() == new
    for name in NAMES:
        manifest = read_manifest(output / name)
        assert manifest is not None
        assert manifest.options["commit"] == COMMITS["main"]
    assert_refused(fetched(output, "--revision", "none"), "Hugging Face, dataset allenai/c4: RevisionNotFoundError")


def test_a_file_that_differs_from_the_hubs_word_is_not_kept(hub: FakeHub, tmp_path: Path) -> None:
    hub.announced[NAMES[1]] = "0" * 64
    assert_refused(fetched(tmp_path / "c4"), "00769-of-01024.json.gz: ", "bytes, sha256:0000", status=1)
    assert NAMES[1] not in all_files(tmp_path / "c4")
    assert not [path for path in (tmp_path / "c4").rglob("*") if path.name.endswith(".partial")]


def test_files_that_are_there_are_checked_and_never_replaced(hub: FakeHub, tmp_path: Path) -> None:
    output = tmp_path / "c4"
    (output / "en").mkdir(parents=True)
    (output / NAMES[0]).write_bytes(FILES[NAMES[0]])
    assert fetched(output).returncode == 0
    assert hub.downloads == NAMES[1:]
    assert all_files(output) == NAMES
    (output / NAMES[0]).write_bytes(b"x" + FILES[NAMES[0]][1:])
    (output / NAMES[1]).write_bytes(b"short")
    assert_refused(fetched(output), "the hub has", "delete it and fetch it again", status=1)
    assert (output / NAMES[0]).read_bytes()[:1] == b"x"
    assert (output / NAMES[1]).read_bytes() == b"short"


def write_tokenizer(path: Path, pieces: int) -> None:
    model = sentencepiece_model_pb2.ModelProto()
    model.trainer_spec.model_type = sentencepiece_model_pb2.TrainerSpec.BPE
    for number in range(pieces):
        piece = model.pieces.add(piece=f"p{number}")
        if number == 2:
            piece.type = sentencepiece_model_pb2.ModelProto.SentencePiece.UNKNOWN
    path.write_bytes(model.SerializeToString())


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A folder with everything, under the names it has at its origin."""
    folder = tmp_path / "stored"
    folder.mkdir()
    for name in NAMES[:2]:
        (folder / Path(name).name).write_bytes(FILES[name])
    (folder / "c4-validation_24567exp.json").write_text('{"text": "tree"}\n' * 24_567)
    write_tokenizer(folder / "c4_en_301_5Mexp2_spm.model", 50257)
    counters = ["step", *(f"opt_states_0.{group}_{i}.count" for group in ("no_prefix", "p#96#i-1") for i in range(4))]
    for name in [*(f"mdl_vars.{number}" for number in range(48)), *counters]:
        (folder / "checkpoint_00004000" / name).mkdir(parents=True)
        (folder / "checkpoint_00004000" / name / ".zarray").write_text("{}")
    return folder


NEEDED = ["--what", "train", "validation-subset", "tokenizer", "checkpoint", "--shards", "768-769"]


def test_everything_is_taken_from_a_folder(stored: Path, tmp_path: Path) -> None:
    output = tmp_path / "c4"
    arguments = ["fetch", "--output", output, *NEEDED]
    listed = command("data_prep", *arguments, "--list")
    assert_refused(listed, "c4: 5 of 5 files are missing or not checked, first " + NAMES[0], status=1)
    assert re.search(r"checkpoint +0 +1 +2.1 TB\s+checkpoint_00004000", listed.stdout)
    assert listed.stdout.count("bash <(curl -s https://raw.githubusercontent.com/mlcommons/r2-downloader/") == 3
    done = command("data_prep", *arguments, "--from", stored)
    assert done.returncode == 0, done.stderr
    files = [name for name in all_files(output) if not name.startswith("checkpoint")]
    assert files == ["c4-validation_24567exp.json", *NAMES[:2], "tokenizers/c4_spm/sentencepiece.model"]
    assert len(list((output / "checkpoint_00004000").glob("*/.zarray"))) == 57
    assert (output / NAMES[0]).stat().st_ino == (stored / Path(NAMES[0]).name).stat().st_ino  # linked
    complete = command("data_prep", *arguments, "--list")
    assert complete.returncode == 0
    assert "curl" not in complete.stdout  # nothing is left to be downloaded
    # What has changed since is not taken for checked.
    os.utime(output / NAMES[0], ns=(1, 1))
    assert_refused(command("data_prep", *arguments, "--list"), "1 of 5 files", NAMES[0], status=1)
    assert command("data_prep", *arguments, "--from", tmp_path).returncode == 0  # checked again where it is
    assert command("data_prep", *arguments, "--list").returncode == 0


def test_what_a_folder_lacks_is_missing(stored: Path, tmp_path: Path) -> None:
    (stored / "c4_en_301_5Mexp2_spm.model").unlink()
    done = command("data_prep", "fetch", "--output", tmp_path / "c4", *NEEDED, "--from", stored)
    assert_refused(
        done, "1 of 5 files", "get tokenizers/c4_spm/sentencepiece.model from where the table says", status=1
    )
    assert re.search(r"tokenizer +0 +1 +1.1 MB", done.stdout)
    assert "gs://mlperf-llm-public2/vocab/c4_en_301_5Mexp2_spm.model" in done.stdout
    assert_refused(fetched(tmp_path / "c4", "--from", tmp_path / "none"), "none: no such folder")


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        (NAMES[0], FILES[NAMES[0]][:20], "truncated or damaged gzip file"),
        (NAMES[0], gzip.compress(b"", mtime=0), "holds no document"),
        ("c4-validation_24567exp.json", b'{"text": "tree"}\n' * 24_566, "24,566 documents, expected 24,567"),
        ("c4_en_301_5Mexp2_spm.model", b"an HTML page", "not a SentencePiece model"),
        ("checkpoint_00004000", b"", "47 arrays"),
    ],
)
def test_damaged_files_are_not_taken(name: str, content: bytes, complaint: str, stored: Path, tmp_path: Path) -> None:
    damaged = stored / Path(name).name
    if damaged.is_dir():
        (damaged / "mdl_vars.3" / ".zarray").unlink()
    else:
        damaged.write_bytes(content)
    what = next(kind for kind, artifact in ARTIFACTS.items() if name in (*artifact.files, artifact.published_name))
    wanted = needed_files([what], "768")
    with pytest.raises((InputError, CheckFailed), match=damaged.name) as failure:
        fetch(tmp_path / "c4", wanted, source=stored)
    assert complaint in str(failure.value)
    assert all_files(tmp_path / "c4") == []
    with pytest.raises(CheckFailed, match="1 of 1 files are missing"):
        require_all(tmp_path / "c4", artifact_rows(tmp_path / "c4", wanted))


def test_token_files_are_compared_with_the_published_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "c4_en_validation_subset_c4_spm_text_document.idx"
    (tmp_path / name).write_bytes(b"tokens")
    path = f"preprocessed_c4_spm/{name}"
    wanted: dict[str, artifacts.ArtifactKind] = {path: "dataset"}
    with pytest.raises(CheckFailed, match="expected f76050809d0b42611eeef31d67d04224"):
        fetch(tmp_path / "c4", wanted, source=tmp_path)
    monkeypatch.setitem(artifacts.DATASET_MD5, name, md5_file(tmp_path / name))
    fetch(tmp_path / "c4", wanted, source=tmp_path)
    require_all(tmp_path / "c4", artifact_rows(tmp_path / "c4", wanted))
    manifest = read_manifest(tmp_path / "c4" / path)
    assert manifest is not None
    assert manifest.outputs[0].md5 == md5_file(tmp_path / name)


DOWNLOAD = "llama3_1_8b_preprocessed_c4_dataset"
LLAMA = ("fetch", "--what", "llama31-dataset", "--output")


@pytest.fixture
def download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small download of Llama's token files with its list of sums."""
    folder, lines = tmp_path / DOWNLOAD, []
    folder.mkdir()
    for number, prefix in enumerate(sorted({name.rpartition(".")[0] for name in LLAMA31_DATASET_BYTES})):
        write_dataset(folder / prefix, [9000, 20, 3000], vocab_size=128_256, seed=number)
    for name in LLAMA31_DATASET_BYTES:
        monkeypatch.setitem(artifacts.LLAMA31_DATASET_BYTES, name, (folder / name).stat().st_size)
        lines.append(f"{md5_file(folder / name)}  {name}\n")
    (folder / "llama-3-1-8b-preprocessed-c4-dataset.md5").write_text("".join(lines))
    (folder / "unnamed.md5").write_text(f"{32 * '0'}\n")
    return folder


def test_llamas_token_files_are_compared_with_the_list_that_came_along(download: Path, tmp_path: Path) -> None:
    done = command("data_prep", *LLAMA, tmp_path / "c4", "--from", download)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"llama31-dataset +4 +4 ", done.stdout)
    for name in LLAMA31_DATASET_BYTES:
        manifest = read_manifest(tmp_path / "c4/preprocessed_c4_llama31" / name)
        assert manifest is not None and manifest.outputs[0].md5 == md5_file(download / name)


@pytest.mark.parametrize("listed", [True, False])
def test_llamas_damaged_token_files_are_not_taken(listed: bool, download: Path, tmp_path: Path) -> None:
    """A bit, with the list; also without it: zeros, ids of another tokenizer, another size, another index."""
    (sums,) = download.glob("llama*.md5")
    name = "c4-train.en_6_text_document.bin"
    content = (download / name).read_bytes()
    zeros = content[:16384] + bytes(16384) + content[32768:]
    foreign = content[:400] + (128_256).to_bytes(4, "little") + content[404:]
    cases = [
        (
            content[:-4] + bytes([content[-4] ^ 1]) + content[-3:],
            "expected .*preprocessed-c4-dataset.md5.; download it again",
        )
    ]
    if not listed:
        sums.unlink()
        cases = [
            (zeros, "bytes 16,384 to 32,767 are zeros, not tokens of a text: .*; download it again"),
            (foreign, "holds token 128256, but the vocabulary has 128256: it was made with another tokenizer"),
        ]
    for damaged, complaint in [*cases, (content[:-4], "48,076 bytes, expected 48,080; download it again")]:
        (download / name).write_bytes(damaged)
        refused = command("data_prep", *LLAMA, tmp_path / "c4", "--from", download)
        assert refused.returncode == 1 and re.search(f"error: .*{name}: .*{complaint}", refused.stderr), refused.stderr
    assert all_files(tmp_path / "c4") == []
    (download / name).write_bytes(content)
    index = download / name.replace(".bin", ".idx")
    index.write_bytes(bytes(index.stat().st_size))
    refused = command("data_prep", *LLAMA, tmp_path / "c4", "--from", download)
    assert "idx: not an MMIDIDX version 1 index" in refused.stderr


def test_sums_that_were_not_compared_are_told(download: Path, tmp_path: Path) -> None:
    for path in download.glob("*.md5"):
        path.unlink()
    done = command("data_prep", *LLAMA, tmp_path / "c4", "--from", download)
    assert done.returncode == 0
    told = "its MD5 was not compared, for no list has it; put llama-3-1-8b-preprocessed-c4-dataset.md5 beside it"
    assert [told in line for line in done.stderr.splitlines()] == [True] * 4


def test_another_folder_does_not_silently_keep_the_old_files(download: Path, tmp_path: Path) -> None:
    assert command("data_prep", *LLAMA, tmp_path / "c4", "--from", download).returncode == 0
    other = tmp_path / "other"
    shutil.copytree(download, other)
    assert command("data_prep", *LLAMA, tmp_path / "c4", "--from", other).returncode == 0  # the same bytes
    write_dataset(other / "c4-train.en_6_text_document", [9000, 20, 3000], vocab_size=128_256, seed=7)
    refused = command("data_prep", *LLAMA, tmp_path / "c4", "--from", other)
    again = "another file; --force replaces files of an earlier fetch"
    assert_refused(refused, "document.bin: is there, and", again, status=1)


def test_llamas_tokenizer_has_its_published_size(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    options = ["--what", "llama31-tokenizer", "--output", tmp_path / "c4", "--from", tmp_path]
    refused = command("data_prep", "fetch", *options)
    assert_refused(refused, "tokenizer.json: 2 bytes, expected 9,085,658; download it again", status=1)


def test_llamas_missing_token_files_are_listed_with_their_command(tmp_path: Path) -> None:
    done = command("data_prep", *LLAMA, tmp_path / "c4", "--list")
    missing = "4 of 4 files are missing or not checked, first preprocessed_c4_llama31/c4-train.en_6_text_document.bin"
    assert_refused(done, missing, status=1)
    assert re.search(r"llama31-dataset +0 +4 +85.1 GB", done.stdout)
    command_line = f"-d {DOWNLOAD} https://training.mlcommons-storage.org/metadata/"
    assert f"{command_line}llama-3-1-8b-preprocessed-c4-dataset.uri" in done.stdout


def test_no_network_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{unused.getsockname()[1]}")
        done = fetched(tmp_path / "c4")
    assert_refused(done, "Hugging Face, dataset allenai/c4: ConnectError", "check the network", "--from")
    assert all_files(tmp_path / "c4") == []


def test_shards_that_do_not_exist_are_refused() -> None:
    for shards in ("1024", "5-4", "-3", "a-b", "1-2-3", ""):
        with pytest.raises(InputError, match=f"--shards {shards}: expected FIRST-LAST or one number, from 0 to 1023"):
            needed_files(["train"], shards)


def test_the_list_as_json_has_the_published_commands(tmp_path: Path) -> None:
    """mlcommons/training at aa344c7f, retired_benchmarks/gpt3/megatron-lm/README.md, lines 173 to 181."""
    published = "bash <(curl -s https://raw.githubusercontent.com/mlcommons/r2-downloader/refs/heads/main/"
    published += "mlc-r2-downloader.sh) https://training.mlcommons-storage.org/metadata/gpt-3-megatron-"
    done = command("data_prep", "fetch", "--output", tmp_path, "--list", "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert [(file["name"], file["there"]) for file in found][255:257] == [
        ("en/c4-train.01023-of-01024.json.gz", False),
        ("c4-validation_24567exp.json", False),
    ]
    commands = {command.removeprefix(published) for file in found for command in file["commands"]}
    assert commands == {"preprocessed-dataset.uri", "fp32-checkpoint.uri", "bf16-checkpoint.uri"}
