"""The SentencePiece tokenizer: the reference's options, the same bytes for the same text."""

from pathlib import Path

import pytest
import sentencepiece

from data_prep.tokenizing.tokenizer import Tokenizer, train_tokenizer
from foundation.errors import InputError
from foundation.outputs.digest import md5_file
from tests.data_prep.models import train
from tests.support import command


def test_tokenizer_has_the_references_options(corpus_tokenizer: Path) -> None:
    model = sentencepiece.SentencePieceProcessor(model_file=str(corpus_tokenizer))
    assert (model.pad_id(), model.eos_id(), model.bos_id(), model.unk_id()) == (0, 1, -1, 2)
    assert model.get_piece_size() == 500
    assert model.id_to_piece(3) == "<0x00>"  # byte fallback
    assert len(model.encode("1234", out_type=str)) == 5  # split digits, after the dummy prefix


def test_tokenizer_bytes_do_not_depend_on_paths(corpus: Path, corpus_tokenizer: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").symlink_to(corpus)
    shards = sorted((tmp_path / "elsewhere" / "en").iterdir())
    model = tmp_path / "other name.model"
    assert (
        command("data_prep", "train-tokenizer", "--input", *shards, "--output", model, "--vocab-size", 500).returncode
        == 0
    )
    assert md5_file(model) == md5_file(corpus_tokenizer)


def test_encoding_and_decoding(corpus_tokenizer: Path) -> None:
    tokenizer = Tokenizer(corpus_tokenizer)
    ids = tokenizer.encode("the tree")
    assert tokenizer.encode_batch([b"the tree", b""]) == [ids, []]
    assert tokenizer.decode(ids) == "the tree"
    assert "".join(map(tokenizer.piece, ids)) == "▁the▁tree"
    assert [tokenizer.piece_id(tokenizer.piece(token)) for token in ids] == ids
    assert tokenizer.serialized == corpus_tokenizer.read_bytes()
    with pytest.raises(UnicodeEncodeError):
        tokenizer.encode("\ud800")
    with pytest.raises(IndexError):
        tokenizer.decode([tokenizer.vocab_size])


def test_a_model_without_an_end_token(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"m: has no end-of-sequence token; leave out --append-eod"):
        Tokenizer(train(tmp_path / "m", eos_id=-1)).end_of_document()


def test_what_cannot_be_trained_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"text": "tree"}\n')
    for pieces, complaint in ((3, "259 to 16777216"), (260, "263 or more"), (900, "[0-9]+ or less")):
        with pytest.raises(InputError, match=f"^--vocab-size {pieces}: expected {complaint}"):
            train_tokenizer([tmp_path / "x.json"], tmp_path / "m", vocab_size=pieces)
    (tmp_path / "x.json").write_text('{"text": "tree"}\nno\n')
    with pytest.raises(InputError, match=r"x.json:2: not a JSON object .Expecting value: line 1 column 1 .char 0..$"):
        train_tokenizer([tmp_path / "x.json"], tmp_path / "m", vocab_size=300)
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


@pytest.mark.parametrize("content", [b"", b"\0", b"no model", bytes(5000)])
def test_files_that_are_no_model(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(InputError, match="not a SentencePiece model"):
        Tokenizer(tmp_path / "m")
