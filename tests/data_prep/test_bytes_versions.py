"""The bytes that commands make, with their versions: a change of bytes must come with a higher version.

A dataset in parts, of which another version of the code made some, would otherwise be a mixture that nobody notices.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from checksums.folder_sums import digest_folder
from data_prep.corpus import synthetic_corpus, validation_subset
from data_prep.corpus.synthetic_corpus import CorpusSize, write_synthetic_corpus
from data_prep.preprocessing import preprocess as preprocessing
from data_prep.preprocessing.preprocess import preprocess
from data_prep.preprocessing.token_part import PartMaker
from data_prep.sample_order import kept_index
from data_prep.sample_order.token_windows import open_token_windows
from foundation.errors import InputError
from foundation.outputs.digest import md5_text
from foundation.outputs.manifest import manifest_path, read_manifest
from foundation.outputs.shards import Shard
from tests.data_prep.random_models import write_random_model
from tests.support import assert_refused, command, write_dataset


def _digest(folder: Path, pattern: str) -> str:
    sums = {name: md5 for name, md5 in digest_folder(folder).items() if Path(name).match(pattern)}
    assert sums
    return md5_text(repr(sorted(sums.items())))


def _corpus(folder: Path) -> Path:
    write_synthetic_corpus(folder / "c4", seed=1, size=CorpusSize(2, 30, 9))
    return folder / "c4"


def _model(path: Path) -> Path:
    """A model whose ids depend on its pieces alone, not on the tables of the installed SentencePiece."""
    model = model_pb2.ModelProto()
    model.ParseFromString(write_random_model(path, random.Random(11)).read_bytes())
    model.normalizer_spec.precompiled_charsmap = b""
    path.write_bytes(model.SerializeToString())
    return path


def _synthetic_corpus(folder: Path) -> str:
    return _digest(_corpus(folder), "*")


def _validation_subset(folder: Path) -> str:
    texts = _corpus(folder) / "c4-validation.json"
    words = ["--input", texts, "--output", folder / "v.json", "--count", 4]
    assert command("data_prep", "validation-subset", *words).returncode == 0
    return _digest(folder, "v.json") + _digest(folder, "v.json.hashes")


def _dataset(folder: Path) -> str:
    shards = sorted((_corpus(folder) / "en").iterdir())
    preprocess(shards, _model(folder / "m.model"), folder / "x", workers=1)
    return _digest(folder, "x.[bi]*")


def _index(folder: Path) -> str:
    write_dataset(folder / "x", [7, 30, 0, 12, 5])
    for shuffle_documents in (False, True):
        for data_path in ([str(folder / "x")], ["0.3", str(folder / "x"), "0.7", str(folder / "x")]):
            open_token_windows(
                data_path, sequence_length=4, num_samples=40, seed=3, shuffle_documents=shuffle_documents
            )
    return _digest(folder / "x.index", "*.npy")


@pytest.mark.parametrize(
    ("make", "version", "recorded"),
    [
        (_synthetic_corpus, synthetic_corpus.BYTES_VERSION, (1, "8467d4337c96a6a39ede538b9c42649e")),
        (
            _validation_subset,
            validation_subset.BYTES_VERSION,
            (1, "d5eb7d71c3f7ae89b3d36849aa0926e06a021ef77b54e1c6449e439e17930287"),
        ),
        (_dataset, preprocessing.BYTES_VERSION, (1, "36f7f277b10a93b407a3ff483955bca4")),
        (_index, kept_index.INDEX_VERSION, (1, "20147e35a0e4a4350bc08130293105f9")),
    ],
)
def test_bytes_change_with_their_version_only(
    make: Callable[[Path], str], version: int, recorded: tuple[int, str], tmp_path: Path
) -> None:
    assert (version, make(tmp_path)) == recorded, "raise the version with the bytes, and record both here"


def test_parts_of_another_version_are_not_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: the join published a dataset equal to neither version's, with status 0."""
    shards, model = sorted((_corpus(tmp_path) / "en").iterdir()), _model(tmp_path / "m.model")
    preprocess(shards, model, tmp_path / "x", workers=1, shard=Shard(0, 2))
    with monkeypatch.context() as newer:
        newer.setattr(preprocessing, "BYTES_VERSION", 2)
        with pytest.raises(InputError, match="begun for another output: version 2 of the bytes that preprocess makes"):
            preprocess(shards, model, tmp_path / "x", workers=1, shard=Shard(1, 2))
    preprocess(shards, model, tmp_path / "x", workers=1)
    words = ["--input", *shards, "--tokenizer", model, "--output-prefix", tmp_path / "x"]
    monkeypatch.setattr(preprocessing, "BYTES_VERSION", 2)
    assert_refused(command("data_prep", "preprocess", *words), "was made otherwise (version 2 of the bytes")
    monkeypatch.setattr(PartMaker, "make", None)
    monkeypatch.setattr(preprocessing, "BYTES_VERSION", 1)
    assert command("data_prep", "preprocess", *words).stdout == f"{tmp_path / 'x'}: already made from these inputs\n"


def test_manifests_without_a_version_are_of_the_first(tmp_path: Path) -> None:
    shards, model = sorted((_corpus(tmp_path) / "en").iterdir()), _model(tmp_path / "m.model")
    preprocess(shards, model, tmp_path / "x", workers=1)
    manifest = manifest_path(tmp_path / "x")
    lines = [line for line in manifest.read_text().splitlines() if "bytes_version" not in line]
    manifest.write_text("\n".join(lines) + "\n")
    former = read_manifest(tmp_path / "x")
    assert former is not None and former.bytes_version == 1
    assert preprocess(shards, model, tmp_path / "x", workers=1) is None
    assert len(former.outputs) == 2
