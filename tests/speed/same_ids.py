"""Compare the fast tokenizer with SentencePiece, document by document, on as much text as one likes.

python -m tests.speed.same_ids --input C4_FILES --tokenizer MODEL [MODEL …] [--spoil]
python -m tests.speed.same_ids --random-models 2000 [--seed 7]

With --spoil, odd characters are put into every document at random places. --random-models makes up models, of random
pieces and random normalisers, and texts for them. Exit status 1 if any id differs.
"""

import argparse
import itertools
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from data_prep.corpus.c4 import documents_of
from data_prep.tokenizing.fast_tokenizer import FastTokenizer
from data_prep.tokenizing.tokenizer import Tokenizer
from tests.data_prep.random_models import random_texts, write_random_model

BATCH = 256
TEXTS_PER_MODEL = 200
ODD = [
    *" \t\r\n\x00\x01\x0b\x0c\x1c\x7f\x85",
    *"\u2581\u00a0\u00ad\u0301\u0308\u0338\u200b\u200d\u2028\u3000\ufeff\ufffd",
    *"\u00a8\u00b4\u00bd\u212b\ufb01\ufdfa\uff21\u1e9b\u0345",
    *"\u6587\u3042\uac00\u0e01\u0639\u05d0\u0915\U0001f600",
    *["<pad>", "</s>", "<unk>", "<0x41>", "  ", " \u2581 ", ",\u0301", "e\u0301", "7", "&nbsp;"],
]


def spoiled(text: str, draw: random.Random) -> str:
    """The text with a few odd characters in it."""
    characters = list(text)
    for _ in range(1 + len(text) // 300):
        characters.insert(draw.randrange(len(characters) + 1), draw.choice(ODD))
    return "".join(characters)


def differing(texts: Iterator[str], tokenizer: FastTokenizer) -> tuple[int, int]:
    """Number of documents, and of those whose ids differ."""
    count = differing_texts = 0
    while batch := list(itertools.islice(texts, BATCH)):
        ids, sizes = tokenizer.encode_documents([text.encode() for text in batch])
        start = 0
        for text, size in zip(batch, sizes.tolist(), strict=True):
            if tokenizer.plain.encode(text) != ids[start : start + size].tolist():
                differing_texts += 1
                print(f"differs: {text[:200]!r}")
            start += size
        count += len(batch)
    return count, differing_texts


def differing_of_random_models(first: int, count: int) -> int:
    """Try models number ``first`` on; how many documents differ."""
    documents = differing_texts = 0
    reasons = Counter[str | None]()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            draw = random.Random(seed)
            model = Tokenizer(write_random_model(Path(folder, "m"), draw))
            tokenizer = FastTokenizer(model, np.dtype(np.uint16))
            reasons[tokenizer.why_slow] += 1
            if tokenizer.why_slow is None:
                differing_of_model = differing(iter(random_texts(draw, TEXTS_PER_MODEL)), tokenizer)
                documents, differing_texts = documents + differing_of_model[0], differing_texts + differing_of_model[1]
                if differing_of_model[1]:
                    print(f"model {seed}: {differing_of_model[1]} documents differ")
    print(f"{documents:,} documents of {reasons.pop(None, 0):,} models, {differing_texts} differ; encoded whole:")
    for reason, models in reasons.most_common():
        print(f"  {models:,} models: {reason}")
    return differing_texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="+", type=Path, default=[])
    parser.add_argument("--tokenizer", nargs="+", type=Path, default=[])
    parser.add_argument("--spoil", action="store_true")
    parser.add_argument("--random-models", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if bool(options.input and options.tokenizer) == bool(options.random_models):
        parser.error("either --input and --tokenizer, or --random-models")
    total = differing_of_random_models(options.seed, options.random_models) if options.random_models else 0
    for path in options.tokenizer:
        draw = random.Random(path.name)
        texts = (text for source in options.input for _, text in documents_of(source))
        tokenizer = FastTokenizer(Tokenizer(path), np.dtype(np.int32))
        result = "cut" if tokenizer.why_slow is None else f"whole: {tokenizer.why_slow}"
        spoiled_texts = (spoiled(text, draw) for text in texts) if options.spoil else texts
        count, differing_texts = differing(spoiled_texts, tokenizer)
        print(f"{path.name}: {count:,} documents, {differing_texts} differ ({result})")
        total += differing_texts
    sys.exit(1 if total else 0)


if __name__ == "__main__":
    main()
