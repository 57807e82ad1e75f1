"""What earlier processes made counts by the bytes that they read, whatever names and times say."""

import json
import os
import random
from pathlib import Path

import pytest

from data_prep.preprocessing.preprocess import preprocess
from data_prep.preprocessing.token_part import PartMaker
from data_prep.tokenizing.tokenizer import train_tokenizer
from foundation.outputs.digest import md5_file
from foundation.outputs.manifest import read_manifest
from foundation.outputs.shards import Shard
from tests.data_prep.english_text import WORDS
from tests.data_prep.shards import sums


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three plain files, larger than those that are always read whole; and a tokenizer."""
    folder, draw = tmp_path_factory.mktemp("originals"), random.Random(3)
    paths = [folder / f"{number}.json" for number in range(3)]
    for path in paths:
        text = " ".join(draw.choices(WORDS, k=400))
        path.write_text(f"{json.dumps({'text': text})}\n" * (1 + (1 << 20) // len(text)))
        assert path.stat().st_size > 1 << 20
    train_tokenizer(paths[:1], folder / "m.model", vocab_size=400)
    return paths


@pytest.fixture
def inputs(originals: list[Path], tmp_path: Path) -> list[Path]:
    paths = [tmp_path / path.name for path in originals]
    for path, original in zip(paths, originals, strict=True):
        path.write_bytes(original.read_bytes())
    return paths


@pytest.fixture
def made_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are tokenised, by one worker of this process."""
    names: list[str] = []
    make = PartMaker.make

    def noted(self: PartMaker, name: str, file: object, tell: object) -> None:
        names.append(Path(str(file)).name)
        make(self, name, file, lambda *_: None)  # type: ignore[arg-type]

    def in_this_process(maker: PartMaker, files: dict[str, object], workers: int, meter: object) -> None:
        for name, file in files.items():
            noted(maker, name, file, None)

    monkeypatch.setattr("data_prep.preprocessing.preprocess.make_parts", in_this_process)
    return names


def _shards(inputs: list[Path], tokenizer: Path, prefix: Path) -> None:
    for index in range(2):
        preprocess(inputs, tokenizer, prefix, workers=1, shard=Shard(index, 2))


def test_a_copy_with_another_time_is_the_same_input(
    inputs: list[Path], originals: list[Path], made_files: list[str], tmp_path: Path
) -> None:
    tokenizer, prefix = originals[0].parent / "m.model", tmp_path / "x"
    _shards(inputs, tokenizer, prefix)
    assert made_files == ["0.json", "2.json", "1.json"]
    for path in inputs:
        os.utime(path, ns=(1, 1))
    assert preprocess(inputs, tokenizer, prefix, workers=1) is not None
    assert len(made_files) == 3
    copies = [tmp_path / "copy" / path.name for path in inputs]
    copies[0].parent.mkdir()
    for path, copy in zip(inputs, copies, strict=True):
        copy.write_bytes(path.read_bytes())
    assert preprocess(copies, tokenizer, prefix, workers=1) is None  # already made
    preprocess(originals, tokenizer, tmp_path / "y", workers=1)
    assert sums(prefix) == sums(tmp_path / "y")
    with copies[1].open("r+b") as file:
        file.seek(500_000)
        file.write(b"~")
    with pytest.raises(Exception, match=r"was made otherwise \(the content or time of modification of .*1\.json"):
        preprocess(copies, tokenizer, prefix, workers=1)


def test_other_bytes_of_the_same_size_and_time_are_tokenised(
    inputs: list[Path], originals: list[Path], made_files: list[str], tmp_path: Path
) -> None:
    """Fault: the join published the old tokens, with an MD5 that was not the file's."""
    tokenizer, prefix = originals[0].parent / "m.model", tmp_path / "x"
    _shards(inputs, tokenizer, prefix)
    made_files.clear()
    status = inputs[1].stat()
    with inputs[1].open("r+b") as file:
        file.seek(300_000)  # within a text, and in no sample
        file.write(b"zq")
    os.utime(inputs[1], ns=(status.st_atime_ns, status.st_mtime_ns))
    preprocess(inputs, tokenizer, prefix, workers=1)
    assert made_files == ["1.json"]
    manifest = read_manifest(prefix)
    assert manifest is not None and manifest.facts["input_md5"] == [md5_file(path) for path in inputs]
    preprocess(inputs, tokenizer, tmp_path / "y", workers=1)
    assert sums(prefix) == sums(tmp_path / "y")
