"""What preprocess makes, made again by Python's own gzip and json and by SentencePiece, document by document."""

import gzip
import json
from pathlib import Path

import sentencepiece
import zstandard

from data_prep.token_files.indexed_dataset import IndexedDataset


def documents_of_file(path: Path, *, skip: bool) -> list[str | None]:
    """The text of each document; None for a bad line, if ``skip``. Raises ValueError for one otherwise."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    elif path.suffix == ".zst":
        content = zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True).readall()
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    texts: list[str | None] = []
    for number, line in enumerate(lines, 1):
        try:
            text = json.loads(line)["text"]
            texts.append(text.encode().decode() if isinstance(text, str) else None)
        except (ValueError, TypeError, KeyError, RecursionError):
            texts.append(None)
        if texts[-1] is None and not skip:
            raise ValueError(f"{path}:{number}: a bad line")
    return texts


def wrong_dataset(prefix: Path, inputs: list[Path], model: Path, *, skip: bool, append_eod: bool) -> str | None:
    """How a dataset differs from what this makes of the same files."""
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=model.read_bytes())
    texts = [text for path in inputs for text in documents_of_file(path, skip=skip) if text is not None]
    end = [tokenizer.eos_id()] if append_eod else []
    expected = [[*ids, *end] for text in texts if (ids := tokenizer.encode(text))]
    dataset = IndexedDataset(prefix)
    found = [dataset.tokens(number, 0, int(size)).tolist() for number, size in enumerate(dataset.sizes[:])]
    return None if found == expected else f"{len(found)} documents, expected {len(expected)}, or other tokens"
