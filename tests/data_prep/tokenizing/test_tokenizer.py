"""The SentencePiece tokenizer: the reference's options, the same bytes for the same text."""

from pathlib import Path

import sentencepiece

from stage.digest import md5_file
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
