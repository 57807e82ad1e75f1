"""Write the files that make ``transformers.AutoTokenizer`` tokenise like a SentencePiece model of kind BPE.

    tokenizer.json            the model, in the form of the library ``tokenizers``
    tokenizer_config.json     which class reads it, and the special tokens
    sentencepiece.model       the model itself

A tokenizer that is a ``tokenizer.json`` already is copied.

SentencePiece merges by the order of its vocabulary; here the merges are listed: a pair of pieces is merged if the two
together are a piece, the pair of the best score first. Two things differ: special tokens (``</s>``) are recognised in a
text, as in Hugging Face's tokenizers but not in SentencePiece; and the library normalises a character with its
combining marks, or CR LF, as one cluster.
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foundation.errors import InputError
from foundation.file_formats.json_files import LARGEST_JSON, read_bounded, read_json
from foundation.regular_files import UnfitFile, read_regular

NAMES = ("tokenizer.json", "tokenizer_config.json", "sentencepiece.model")
JSON = ".json"
SENTENCEPIECE_VERSION = 2
"""Version of the files made of a SentencePiece model (``Recipe.bytes_version``); 1 took other spaces than its own."""
SPACE = "\u2581"
SETTINGS = {"clean_up_tokenization_spaces": False, "model_input_names": ["input_ids", "attention_mask"]}
LARGEST_MODEL = 1 << 28
ADDED = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


@dataclass(frozen=True)
class AddedToken:
    id: int


@dataclass(frozen=True)
class JsonModel:
    vocab: dict[str, int] | list[tuple[str, float]]
    """Ids by token, or tokens in the order of their ids, with scores."""


@dataclass(frozen=True)
class TokenizerJson:
    """The parts of a ``tokenizer.json`` that matter here."""

    model: JsonModel
    added_tokens: Sequence[AddedToken] = ()


def tokenizer_files(path: Path) -> dict[str, bytes]:
    """Return the contents of the files of NAMES, or the first two.

    Raises InputError if the file is no tokenizer, or cannot be written in this form.
    """
    if path.suffix != JSON:
        return _sentencepiece_files(path)
    pieces_of(path)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **SETTINGS}
    return dict(zip(NAMES, (read_bounded(path, LARGEST_JSON), _text(config)), strict=False))


def pieces_of(path: Path) -> int:
    """Return the number of a tokenizer's ids. Raises InputError as :func:`tokenizer_files` does."""
    if path.suffix != JSON:
        return len(read_model(path)[0].pieces)
    tokenizer = read_json(path, TokenizerJson, mend="it is not a tokenizer.json")
    vocab = tokenizer.model.vocab
    ids = vocab.values() if isinstance(vocab, dict) else range(len(vocab))
    return 1 + max((*ids, *(token.id for token in tokenizer.added_tokens)), default=-1)


def _sentencepiece_files(model_path: Path) -> dict[str, bytes]:
    model, content = read_model(model_path)
    trainer = model.trainer_spec
    pieces = [piece.piece for piece in model.pieces]
    unknown = next((piece.piece for piece in model.pieces if piece.type == piece.UNKNOWN), None)
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": piece.piece, **ADDED}
            for number, piece in enumerate(model.pieces)
            if piece.type == piece.CONTROL
        ],
        "normalizer": _normalizer(model.normalizer_spec),
        "pre_tokenizer": {
            "type": "Metaspace",
            "replacement": SPACE,
            "prepend_scheme": "never",
            "split": not any(SPACE in piece[1:] for piece in pieces),
        },
        "post_processor": None,
        "decoder": _decoder(model),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": unknown,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": bool(trainer.byte_fallback),
            "ignore_merges": False,
            "vocab": {piece: number for number, piece in enumerate(pieces)},
            "merges": _merges(model),
        },
    }
    # No unk_token here: Hugging Face would take the letters <unk> of a text for it.
    special = {"pad_token": trainer.pad_id, "eos_token": trainer.eos_id, "bos_token": trainer.bos_id}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{name: pieces[number] for name, number in special.items() if 0 <= number < len(pieces)},
        **SETTINGS,
    }
    return dict(zip(NAMES, (_text(tokenizer), _text(config), content), strict=True))


def _text(value: object) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()


def read_model(path: Path) -> tuple[Any, bytes]:
    """Return the model's own description, and the file's content.

    Raises InputError if it is no SentencePiece model of kind BPE, or the model cannot be written in this form.
    """
    from google.protobuf.message import DecodeError
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()
    try:
        content = read_regular(path, LARGEST_MODEL)
        model.ParseFromString(content)
    except (UnfitFile, DecodeError) as error:
        raise InputError(f"{path}: not a SentencePiece model ({error})") from error
    if not model.pieces:
        raise InputError(f"{path}: not a SentencePiece model (it has no pieces)")
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    for refused, trait in (
        (trainer.model_type != trainer.BPE, "of a kind other than BPE"),
        (trainer.treat_whitespace_as_suffix, "with spaces behind the words"),
        (not normalizer.escape_whitespaces, "that keeps spaces as they are"),
        (any(piece.type == piece.USER_DEFINED for piece in model.pieces), "with pieces defined by its user"),
        (len({piece.piece for piece in model.pieces}) != len(model.pieces), "with a piece that occurs twice"),
    ):
        if refused:
            raise InputError(
                f"{path}: a model {trait}, which is not written in Hugging Face's form; leave --tokenizer out"
            )
    return model, content


def _merges(model: Any) -> list[list[str]]:
    """Return pairs of pieces by the score of the piece that they make, the best first, then by its place."""
    scored = {
        piece.piece: (-piece.score, number) for number, piece in enumerate(model.pieces) if piece.type == piece.NORMAL
    }
    ranked = []
    for piece, rank in scored.items():
        ranked += [
            (rank, len(piece[:at]), piece[:at], piece[at:])
            for at in range(1, len(piece))
            if piece[:at] in scored and piece[at:] in scored
        ]
    return [[left, right] for _, _, left, right in sorted(ranked)]


def _normalizer(spec: Any) -> dict[str, Any]:
    """Return SentencePiece's steps: it puts a space before a text unless only spaces are in it, and counts U+2581 among
    the spaces at the end."""
    steps: list[dict[str, Any]] = []
    prefix = [{"type": "Prepend", "prepend": SPACE}] if spec.add_dummy_prefix else []
    if not spec.remove_extra_whitespaces:
        steps += prefix
    if spec.precompiled_charsmap:
        rules = base64.b64encode(spec.precompiled_charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": rules})
    if spec.remove_extra_whitespaces:
        outer_spaces = rf"\A +|[ {SPACE}]+\z"
        steps.append({"type": "Replace", "pattern": {"Regex": outer_spaces}, "content": ""})
        steps.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
        steps += prefix
    steps.append({"type": "Replace", "pattern": {"String": " "}, "content": SPACE})
    return {"type": "Sequence", "normalizers": steps}


def _decoder(model: Any) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": SPACE}, "content": " "}]
    if model.trainer_spec.byte_fallback:
        steps.append({"type": "ByteFallback"})
    steps.append({"type": "Fuse"})
    if model.normalizer_spec.add_dummy_prefix:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": steps}
