"""A tokenizer.json: the ids that transformers gives, in datasets of the right width, and files that are none."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_prep.preprocessing.preprocess import preprocess
from data_prep.preprocessing.token_part import Reading
from data_prep.token_files.indexed_dataset import IndexedDataset
from data_prep.tokenizing.tokenizer import open_tokenizer
from foundation.errors import InputError
from foundation.outputs.digest import md5_file
from foundation.outputs.manifest import read_manifest
from tests.data_prep import english_text
from tests.data_prep.models import TEXTS
from tests.support import assert_refused, command

LLAMA_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
END = "<|end_of_text|>"
DOCUMENTS = [text for text in [*TEXTS, f"a {END} b", *english_text.LINES[:40]] if text]


def write_llama_like(path: Path, vocab_size: int) -> Path:
    """Train a byte-level BPE of Llama 3's kind; ids from 1,000 on are no token but the last, which begins a text."""
    tokenizers = pytest.importorskip("tokenizers")
    from tokenizers import decoders, models, pre_tokenizers, processors, trainers

    trained = tokenizers.Tokenizer(models.BPE(ignore_merges=True))
    split = pre_tokenizers.Split(tokenizers.Regex(LLAMA_PATTERN), "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trained.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
    trained.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
    trained.train_from_iterator(english_text.LINES, trainer)
    trained.add_special_tokens([END])
    described = json.loads(trained.to_str())
    described["model"]["vocab"]["<|begin|>"] = vocab_size - 1
    trained = tokenizers.Tokenizer.from_str(json.dumps(described))
    begin = ("<|begin|>", vocab_size - 1)
    trained.post_processor = processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[begin])
    trained.enable_truncation(3)
    trained.enable_padding(length=50)
    trained.save(str(path))
    return path


def written(path: Path) -> list[list[int]]:
    dataset = IndexedDataset(path)
    return [dataset.tokens(number, 0, int(size)).tolist() for number, size in enumerate(dataset.sizes[:])]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.json"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS))
    return path


@pytest.mark.parametrize(("vocab_size", "dtype"), [(65_499, "uint16"), (128_256, "int32")])
def test_a_dataset_has_the_librarys_ids_and_their_width(
    vocab_size: int, dtype: str, texts: Path, tmp_path: Path
) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    path = write_llama_like(tmp_path / "tokenizer.json", vocab_size)
    preprocess([texts, texts], path, tmp_path / "x", workers=2)
    theirs = tokenizers.Tokenizer.from_file(str(path))
    theirs.no_truncation()
    theirs.no_padding()
    expected = [theirs.encode(text, add_special_tokens=False).ids for text in DOCUMENTS]
    assert written(tmp_path / "x") == 2 * expected
    assert IndexedDataset(tmp_path / "x").dtype == np.dtype(dtype)
    manifest = read_manifest(tmp_path / "x")
    assert manifest is not None
    identity = f"md5:{md5_file(path)}"
    assert manifest.options.items() >= {"vocab_size": vocab_size, "dtype": dtype, "tokenizer": identity}.items()
    assert manifest.inputs[-1].identity == identity
    assert manifest.versions == {"tokenizers": tokenizers.__version__}
    ours = open_tokenizer(path)
    assert [ours.decode(ids) for ids in expected] == DOCUMENTS
    assert (ours.piece(theirs.token_to_id(END)), ours.piece(60_000)) == (END, "")


@pytest.mark.slow  # importing transformers takes several seconds
def test_ids_are_those_of_transformers(tmp_path: Path) -> None:
    """As the reference's encoder calls it: the ids of the tokens of a text."""
    transformers = pytest.importorskip("transformers")
    path = write_llama_like(tmp_path / "tokenizer.json", 128_256)
    theirs, ours = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path)), open_tokenizer(path)
    for text in DOCUMENTS:
        assert ours.encode(text) == theirs.convert_tokens_to_ids(theirs.tokenize(text)), text


def test_commands_take_it_in_place_of_a_sentencepiece_model(texts: Path, tmp_path: Path) -> None:
    path, prefix = write_llama_like(tmp_path / "tokenizer.json", 70_000), tmp_path / "x"
    options = ["--input", texts, "--tokenizer", path, "--output-prefix", prefix]
    assert_refused(command("data_prep", "preprocess", *options, "--append-eod"), "leave out --append-eod")
    assert command("data_prep", "preprocess", *options).returncode == 0
    report = command("data_prep", "inspect", "--data-path", prefix, "--tokenizer", path, "--json")
    assert report.returncode == 0, report.stderr
    assert json.loads(report.stdout)["vocabulary"]["tokens_beyond"] == 0
    asked = ["--seq-length", 16, "--num-samples", 2, "--seed", 1, "--output", tmp_path / "s.npy", "--tokenizer", path]
    assert command("data_prep", "samples", "--data-path", prefix, *asked).returncode == 0
    for ending in (".bin", ".idx"):  # published files come without a manifest
        shutil.copy(prefix.with_suffix(ending), tmp_path / f"published{ending}")
    assert command("data_prep", "inspect", "--data-path", tmp_path / "published", "--against", prefix).returncode == 0


def model(normalizer: object = None, **fields: Any) -> str:
    described = {"type": "BPE", "vocab": {"a": 0}, "merges": [], **fields}
    return json.dumps({"version": "1.0", "normalizer": normalizer, "model": described})


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "not a tokenizer.json (Cannot instantiate"),
        ("[" * 100_000, "not a tokenizer.json"),
        ("{}", "Model missing"),
        (model(vocab={}), "not a tokenizer.json (it has no tokens)"),
        (model(vocab={"a": 0, "b": 1 << 24}), "has a token with id 16,777,216, more than any vocabulary has"),
        (model(vocab={"a": 0, "b": 1 << 32}), "expected u32"),
        (model(merges=["a b"]), "Token `b` out of vocabulary"),
        (model(dropout=0.1), "chooses among tokens at random; set its dropout to null"),
        (model({"type": "Precompiled", "precompiled_charsmap": "AAAA"}), "not a tokenizer.json (Precompiled"),  # panics
        (" " * ((64 << 20) + 1), "67,108,865 bytes, more than 67,108,864"),
    ],
)
def test_files_that_are_no_tokenizer_are_refused(content: str, complaint: str, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(InputError) as error:
        open_tokenizer(path)
    assert str(error.value).startswith(f"{path}: ")
    assert complaint in str(error.value)


def test_a_text_without_tokens_for_it_is_refused(texts: Path, tmp_path: Path) -> None:
    """Unigram and WordPiece end with an error of the library; it is told in a line, also by a worker."""
    pytest.importorskip("tokenizers")
    path = tmp_path / "tokenizer.json"
    path.write_text(model(type="Unigram", unk_id=None, vocab=[["a", -1.0]]))
    with pytest.raises(InputError, match=r"tokenizer\.json: cannot encode a text that begins with"):
        preprocess([texts], path, tmp_path / "x", workers=2, reading=Reading("skip"))
