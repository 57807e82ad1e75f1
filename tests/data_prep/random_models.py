"""BPE models made of random pieces and random normaliser tables, and texts of the characters that both are about.

No model is trained: one takes a few milliseconds. Most tables that training would never come up with are among them:
entries that begin with, hold or give spaces, newlines, U+2581 and plain characters.
"""

import random
import tempfile
from collections.abc import Mapping
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as model_pb2

SPACES = " \n\t\r\u3000\u00a0\u2581"
PLAIN = "abAB,.1<"
OTHERS = "\u0301\u0308\u00e9\u00df\u200b\u00bd\u6587\x01"
RULE_NAMES = ["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "identity"]

KINDS = model_pb2.ModelProto.SentencePiece


def write_random_model(path: Path, draw: random.Random) -> Path:
    """A model of some 300 pieces: control, bytes, the space, characters and random strings with random scores."""
    model = model_pb2.ModelProto()
    model.trainer_spec.model_type = model_pb2.TrainerSpec.BPE
    model.trainer_spec.byte_fallback = True
    model.trainer_spec.unk_id = 2
    model.trainer_spec.pad_id, model.trainer_spec.eos_id, model.trainer_spec.bos_id = 0, 1, -1
    for text, kind in (("<pad>", KINDS.CONTROL), ("</s>", KINDS.CONTROL), ("<unk>", KINDS.UNKNOWN)):
        _add(model, text, kind, 0)
    for byte in range(256):
        _add(model, f"<0x{byte:02X}>", KINDS.BYTE, 0)
    for text in _random_pieces(draw):
        _add(model, text, KINDS.NORMAL, -draw.randrange(30))
    model.normalizer_spec.CopyFrom(_random_normalizer(draw))
    path.write_bytes(model.SerializeToString())
    return path


def _add(model: model_pb2.ModelProto, text: str, kind: int, score: float) -> None:
    piece = model.pieces.add()
    piece.piece, piece.type, piece.score = text, kind, score


def _random_pieces(draw: random.Random) -> list[str]:
    """Characters, and strings grown out of two pieces each, so that merges can reach them. Few hold U+2581 inside."""
    known = draw.sample(PLAIN + OTHERS, draw.randrange(4, len(PLAIN + OTHERS)))
    pieces = ["\u2581", *known]
    for _ in range(draw.randrange(60)):
        front, back = draw.choice(pieces), draw.choice(pieces[1:])
        if "\u2581" not in back or draw.random() < 0.01:
            pieces.append(front + back)
    if draw.random() < 0.05:
        pieces.remove("\u2581")
    return list(dict.fromkeys(pieces))


def _random_normalizer(draw: random.Random) -> model_pb2.NormalizerSpec:
    named = draw.random() < 0.2
    spec = model_pb2.NormalizerSpec()
    spec.precompiled_charsmap = charsmap_named(draw.choice(RULE_NAMES)) if named else charsmap_of(random_rules(draw))
    for option in ("add_dummy_prefix", "remove_extra_whitespaces", "escape_whitespaces"):
        setattr(spec, option, draw.random() < 0.98)
    return spec


def charsmap_named(name: str) -> bytes:
    """One of SentencePiece's own tables."""
    return _charsmap(sentencepiece.SentencePieceNormalizer(rule_name=name))


def charsmap_of(rules: Mapping[str, str]) -> bytes:
    """The table of these entries, as ``--normalization_rule_tsv`` makes it."""
    sentencepiece.SetMinLogLevel(2)
    lines = ["\t".join(" ".join(f"{ord(c):X}" for c in text) for text in rule) for rule in sorted(rules.items())]
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        file.write("".join(f"{line}\n" for line in lines))
        file.flush()
        return _charsmap(sentencepiece.SentencePieceNormalizer(rule_tsv=file.name))


def _charsmap(normalizer: sentencepiece.SentencePieceNormalizer) -> bytes:
    model = model_pb2.ModelProto()
    model.ParseFromString(normalizer.serialized_model_proto())
    return bytes(model.normalizer_spec.precompiled_charsmap)


def random_rules(draw: random.Random) -> dict[str, str]:
    """One to six entries, of which about half the tables allow cutting."""
    rules: dict[str, str] = {}
    while not rules or draw.random() < 0.75:
        begins = draw.choice([SPACES[1:], SPACES[1:], PLAIN, OTHERS, OTHERS, " "] if draw.random() < 0.3 else [OTHERS])
        key = draw.choice(begins)
        while draw.random() < 0.4:
            key += draw.choice(OTHERS if draw.random() < 0.85 else SPACES + PLAIN)
        result = "".join(draw.choices(PLAIN + OTHERS + (" \n" if draw.random() < 0.4 else ""), k=draw.randrange(4)))
        rules[key] = draw.choice([result, result, " "]) if draw.random() < 0.97 else draw.choice(["\u2581", "  "])
        if rules[key] == key:  # SentencePiece refuses these
            del rules[key]
    return rules


def random_texts(draw: random.Random, count: int) -> list[str]:
    """Short ones, in which every character meets every other."""
    alphabet = PLAIN * 2 + " " * 6 + SPACES[:-1] + OTHERS
    return ["".join(draw.choices(alphabet, k=draw.randrange(30))) for _ in range(count)]
