"""SentencePiece models that are trained in no time, on words made of a few letters."""

import io
import random
from typing import Any

import sentencepiece

LETTERS = "etaoinshrdlu"


def words(seed: int, count: int) -> str:
    made = random.Random(seed)
    return " ".join("".join(made.choices(LETTERS, k=made.randint(1, 7))) for _ in range(count))


def model_bytes(*, vocab_size: int = 200, **settings: Any) -> bytes:
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(words(seed, 40) for seed in range(100)),
        model_writer=made,
        model_type="bpe",
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        minloglevel=2,
        **settings,
    )
    return made.getvalue()
