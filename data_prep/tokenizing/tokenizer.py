"""The SentencePiece tokenizer: encoding as the reference does, and training with the reference's options."""

import io
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import sentencepiece

from data_prep.corpus.input_files import InputFile, require_files
from data_prep.corpus.named_inputs import as_input, described_inputs, local_of, record_of_input
from data_prep.corpus.text_blocks import documents_of
from stage.digest import md5_file
from stage.errors import InputError
from stage.limits.replacing import must_be_made
from stage.limits.sizes import require_between
from stage.manifest import record_of, require_intact, write_manifest
from stage.publish import published_file

TRAINING_OPTIONS: dict[str, Any] = {
    # docs/facts/reference.md a.5, without train_extremely_large_corpus: SentencePiece now ignores it with a warning.
    "model_type": "bpe",
    "pad_id": 0,
    "eos_id": 1,
    "bos_id": -1,
    "unk_id": 2,
    "split_digits": True,
    "byte_fallback": True,
    "character_coverage": 0.9995,
    "max_sentence_length": 10000,
    "num_threads": 32,
}
VOCAB_SIZE = 50257
LARGEST_MODEL = 1 << 28
LARGEST_VOCABULARY = 1 << 24
DOCUMENTS = 5_000_000


class Tokenizer:
    """Text to token ids: no BOS, no EOS, nothing but the model's own normalisation (docs/facts/reference.md a.4).

    Raises InputError for a file that is no model, or, where it has a manifest, not the one that was made.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise InputError(f"{path}: no such tokenizer model")
        if path.stat().st_size > LARGEST_MODEL:
            raise InputError(f"{path}: {path.stat().st_size:,} bytes, more than any SentencePiece model has")
        require_intact(path)
        self.path = path
        try:
            self._model = sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
            if not self._model.get_piece_size():
                raise RuntimeError("it has no pieces")
        except (RuntimeError, OSError) as error:
            raise InputError(f"{path}: not a SentencePiece model ({error})") from error
        self.vocab_size: int = self._model.get_piece_size()

    @property
    def serialized(self) -> bytes:
        """The model as it is in its file."""
        return bytes(self._model.serialized_model_proto())

    def end_of_document(self) -> int:
        """The end-of-sequence token. Raises InputError where the model has none."""
        token = int(self._model.eos_id())
        if token < 0:
            raise InputError(f"{self.path}: has no end-of-sequence token; leave out --append-eod")
        return token

    def encode(self, text: str) -> list[int]:
        """Token ids. Raises UnicodeEncodeError for a lone surrogate, which has no UTF-8 form."""
        text.encode("utf-8")
        return self._model.encode(text)  # type: ignore[no-any-return]

    def encode_batch(self, texts: list[bytes]) -> list[list[int]]:
        """Token ids of each text in UTF-8, in this thread."""
        return self._model.encode(texts, num_threads=1)  # type: ignore[no-any-return]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, as the model normalised it. Raises IndexError for an id beyond the vocabulary."""
        return str(self._model.decode(list(ids)))

    def piece(self, token: int) -> str:
        return str(self._model.id_to_piece(token))

    def piece_id(self, piece: str) -> int:
        return int(self._model.piece_to_id(piece))


def train_tokenizer(
    inputs: Sequence[InputFile],
    output: Path,
    *,
    vocab_size: int = VOCAB_SIZE,
    documents: int = DOCUMENTS,
    force: bool = False,
) -> bool:
    """Train a model on the first ``documents`` of C4 files; False if ``output`` is already the model they give.

    The same inputs give the same bytes: neither paths nor times enter the model. Each line of a document is a
    sentence, as in the file the reference's model was trained on.
    """
    started = time.monotonic()
    options = {**TRAINING_OPTIONS, "vocab_size": vocab_size}
    made_with = {**options, "documents": documents}
    require_files(local_of(inputs))
    require_between(vocab_size, 1, LARGEST_VOCABULARY, "--vocab-size")
    require_between(documents, 1, math.inf, "--documents")
    inputs = described_inputs(inputs)
    sources = [as_input(path) for path in inputs]
    if not must_be_made(output, stage="train-tokenizer", options=made_with, inputs=sources, force=force):
        return False
    model = _trained_model(inputs, documents, options)
    with published_file(output) as partial:
        partial.write_bytes(model)
        write_manifest(
            output,
            stage="train-tokenizer",
            options=made_with,
            inputs=[record_of_input(path, md5_file(path) if isinstance(path, Path) else None) for path in inputs],
            outputs=[record_of(partial, output.name, md5_file(partial))],
            packages=["sentencepiece"],
            started=started,
        )
    return True


def _trained_model(inputs: Sequence[InputFile], documents: int, options: dict[str, Any]) -> bytes:
    """The bytes of a model. Raises InputError where SentencePiece cannot make one of this text."""
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_sentences(inputs, documents), model_writer=model, minloglevel=2, **options
        )
    except RuntimeError as error:
        raise InputError(f"training a tokenizer of {options['vocab_size']} pieces failed: {error}") from error
    return model.getvalue()


def _sentences(inputs: Sequence[InputFile], documents: int) -> Iterator[str]:
    texts = (text for path in inputs for _, text in documents_of(path))
    for text in itertools.islice(texts, documents):
        yield from filter(None, text.split("\n"))
