"""The tokenizer that is written for Hugging Face gives SentencePiece's ids."""

import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from checkpoint_convert.export.huggingface_tokenizer import tokenizer_files
from foundation.errors import InputError
from tests.checkpoint_convert.export.sentencepiece_models import model_bytes, words

SETTINGS: dict[str, dict[str, Any]] = {
    "as the benchmark's": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "normalization_rule_name": "nmt_nfkc"},
    "bytes": {"byte_fallback": True},
    "as it is": {"normalization_rule_name": "identity", "add_dummy_prefix": False, "remove_extra_whitespaces": False},
    "spaces kept": {
        "normalization_rule_name": "nmt_nfkc",
        "remove_extra_whitespaces": False,
        "allow_whitespace_only_pieces": True,
    },
    "over spaces": {"split_by_whitespace": False, "normalization_rule_name": "nmt_nfkc_cf"},
}
HARD = [
    "",
    " ",
    "  a  b ",
    "\n\na\t b",
    "\u2581a \u2581",
    "a\u2581b",
    "e\u0301t\u00e9 \ufb01 \u00bd \u2460",
    "\u65e5\u672c \U0001f600!",
    "<unk> a",
    "\u3000",
    "\x1ca\x85 \u2028",
    " a \u2581  ",
    "\u200b",
    "   a    b\u2581\u2581",
]


@pytest.mark.parametrize("name", SETTINGS)
def test_ids_and_texts_are_sentencepieces(name: str, tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    (tmp_path / "model").write_bytes(model_bytes(vocab_size=400, **SETTINGS[name]))
    ours = tokenizers.Tokenizer.from_str(tokenizer_files(tmp_path / "model")["tokenizer.json"].decode())
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "model"))
    for text in [*HARD, *(words(seed, 30) for seed in range(1000, 1050))]:
        ids = ours.encode(text, add_special_tokens=False).ids
        assert ids == theirs.encode(text), text
        if theirs.unk_id() not in ids:  # which the one writes as it is and the other as a sign
            assert ours.decode(ids) == theirs.decode(ids)
    assert len(set(ours.encode(words(1, 100)).ids)) > 80


def test_special_tokens_are_named_and_the_model_is_there(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(model_bytes(**SETTINGS["as the benchmark's"]))
    files = tokenizer_files(tmp_path / "model")
    assert files.keys() == {"tokenizer.json", "tokenizer_config.json", "sentencepiece.model"}
    assert files["sentencepiece.model"] == (tmp_path / "model").read_bytes()
    config = json.loads(files["tokenizer_config.json"])
    assert (config["pad_token"], config["eos_token"], config.get("bos_token")) == ("<pad>", "</s>", None)


def test_other_models_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"not a model")
    with pytest.raises(InputError, match="model: not a SentencePiece model"):
        tokenizer_files(path)
    path.write_bytes(b"")
    with pytest.raises(InputError, match="it has no pieces"):
        tokenizer_files(path)
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(model_bytes(vocab_size=400, user_defined_symbols=["<sep>"]))
    path.write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match=r"pieces defined by its user.*leave --tokenizer out"):
        tokenizer_files(path)
    model.trainer_spec.model_type = model.trainer_spec.UNIGRAM
    path.write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match="of a kind other than BPE"):
        tokenizer_files(path)
