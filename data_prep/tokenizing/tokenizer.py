"""Tokenizers of two kinds, and training one as the reference did.

A SentencePiece model gives the ids of the reference's preparation of C4. A ``tokenizer.json`` of Hugging Face's gives
those of ``transformers`` without special tokens around the text, as in the preparation of Llama's data
(docs/facts/llama31_8b.md 3; mlcommons/training, small_llm_pretraining/nemo/README.md).
"""

import hashlib
import io
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sentencepiece

from data_prep.corpus.c4 import documents_of
from data_prep.corpus.input_files import InputFile, InputOptions, Location, describe_inputs, local_paths
from foundation.disk_answers import file_is_there
from foundation.errors import InputError, first_line
from foundation.file_formats.json_files import LARGEST_JSON, read_bounded
from foundation.optional_packages import import_optional
from foundation.outputs.manifest import Recipe, require_intact, versions_of
from foundation.outputs.resumable_output import resumable_output
from foundation.sizes import require_between

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
TRAINING_VERSION = 1
"""Version of the training's input and options beyond those in its recipe (``Recipe.bytes_version``)."""
LARGEST_MODEL = 1 << 28
MEND = "give the benchmark's, or the file that train-tokenizer wrote"
DOCUMENTS = 5_000_000
LARGEST_ID = 1 << 24
"""Largest id of a tokenizer.json, and most pieces to train."""
FEWEST_PIECES = 3 + 256
"""Pieces of every trained model: padding, end, unknown, and a byte each."""
UNTRAINABLE = {
    r"required_chars\. \d+ vs (\d+)": "--vocab-size {vocab_size}: expected {0} or more, because bytes and "
    "characters of the text take so many",
    r"value <= (\d+)": "--vocab-size {vocab_size}: expected {0} or less, because the text has no more pieces",
    r"!sentences_\.empty": "--input: expected documents with text, in lines of at most {max_sentence_length:,} bytes",
}
"""Refusals, by the message of SentencePiece whose number they repeat."""


class Tokenizer:
    """Convert text to token ids: no BOS, no EOS, nothing but the model's own normalisation (docs/facts/reference.md
    a.4).

    Raises InputError for a file that is no model, or that differs from its manifest.
    """

    package = "sentencepiece"

    def __init__(self, path: Path) -> None:
        if not file_is_there(path):
            raise InputError(f"{path}: no such tokenizer model")
        if not path.stat().st_size:
            raise InputError(f"{path}: not a SentencePiece model (it is empty); {MEND}")
        if path.stat().st_size > LARGEST_MODEL:
            raise InputError(f"{path}: {path.stat().st_size:,} bytes, more than any SentencePiece model has")
        require_intact(path)
        self.path, content = path, path.read_bytes()
        try:
            self._model = sentencepiece.SentencePieceProcessor(model_proto=content)
        except (RuntimeError, OSError) as error:  # its text names lines of SentencePiece's own source
            raise InputError(f"{path}: not a SentencePiece model; {MEND}") from error
        self.vocab_size: int = self._model.get_piece_size()
        if not self.vocab_size:
            raise InputError(f"{path}: not a SentencePiece model (it has no pieces); {MEND}")

    @property
    def serialized(self) -> bytes:
        """The bytes of the model's file."""
        return bytes(self._model.serialized_model_proto())

    def end_of_document(self) -> int:
        """Return the end-of-sequence token. Raises InputError if the model has none."""
        token = int(self._model.eos_id())
        if token < 0:
            raise InputError(f"{self.path}: has no end-of-sequence token; leave out --append-eod")
        return token

    def encode(self, text: str) -> list[int]:
        """Return token ids. Raises UnicodeEncodeError for a lone surrogate, which has no UTF-8 form."""
        text.encode("utf-8")
        return self._model.encode(text)  # type: ignore[no-any-return]

    def encode_batch(self, texts: list[bytes]) -> list[list[int]]:
        """Return the token ids of each text, given as UTF-8, without using other threads."""
        return self._model.encode(texts, num_threads=1)  # type: ignore[no-any-return]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ``ids``, in the model's normalised form. Raises IndexError for an id beyond the
        vocabulary."""
        return str(self._model.decode(list(ids)))

    def piece(self, token: int) -> str:
        return str(self._model.id_to_piece(token))

    def piece_id(self, piece: str) -> int:
        return int(self._model.piece_to_id(piece))


class JsonTokenizer:
    """Convert text to token ids, without the tokens that the file would put before or behind a text.

    Raises InputError for a file that is no tokenizer, differs from its manifest, or merges at random.
    """

    package = "tokenizers"

    def __init__(self, path: Path) -> None:
        if not file_is_there(path):
            raise InputError(f"{path}: no such tokenizer")
        library = import_optional("tokenizers", "tokenizers", path.name)
        require_intact(path)
        content = read_bounded(path, LARGEST_JSON)
        self.path = path
        try:
            self._model = library.Tokenizer.from_buffer(content)
        except BaseException as error:
            raise self._refused("not a tokenizer.json", error) from error
        ids = self._model.get_vocab().values()
        if not ids:
            raise InputError(f"{path}: not a tokenizer.json (it has no tokens)")
        if max(ids) >= LARGEST_ID:
            raise InputError(f"{path}: has a token with id {max(ids):,}, more than any vocabulary has")
        if any(getattr(self._model.model, option, None) for option in ("dropout", "alpha")):
            raise InputError(f"{path}: its model chooses among tokens at random; set its dropout to null")
        self._model.no_truncation()
        self._model.no_padding()
        self.vocab_size: int = max(ids) + 1
        """Rows that a model needs for the largest id; an id below may be no token."""

    def _refused(self, reason: str, error: BaseException) -> BaseException:
        """Return the error to raise for one of the library, which has no class of its own, not even for panics."""
        if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
            return error
        return InputError(f"{self.path}: {reason} ({first_line(error)})")

    def end_of_document(self) -> int:
        """Raise InputError: the file does not tell which of its tokens ends a text."""
        raise InputError(f"{self.path}: does not tell which token ends a document; leave out --append-eod")

    def encode(self, text: str) -> list[int]:
        """Return token ids. Raises InputError for a text that the model has no tokens for."""
        try:
            return self._model.encode(text, add_special_tokens=False).ids  # type: ignore[no-any-return]
        except BaseException as error:
            raise self._refused(f"cannot encode a text that begins with {text[:20]!a}", error) from error

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ``ids``. Raises InputError for ids that make no text."""
        try:
            return str(self._model.decode(list(ids), skip_special_tokens=False))
        except BaseException as error:
            raise self._refused("cannot decode tokens", error) from error

    def piece(self, token: int) -> str:
        """Return the token's letters in the vocabulary, or nothing for an id that is no token."""
        return str(self._model.id_to_token(token) or "")


AnyTokenizer = Tokenizer | JsonTokenizer
KINDS: Mapping[str, type[AnyTokenizer]] = {".json": JsonTokenizer}
"""By the end of the file's name; all others are SentencePiece's, whose models have any name."""


def open_tokenizer(path: Path) -> AnyTokenizer:
    """Raises InputError for a file that is no tokenizer of the kind that its name tells."""
    return KINDS.get(path.suffix, Tokenizer)(path)


def train_tokenizer(
    inputs: Sequence[Location],
    output: Path,
    *,
    vocab_size: int = VOCAB_SIZE,
    documents: int = DOCUMENTS,
    bandwidth_limit: str | None = None,
    force: bool = False,
) -> bool:
    """Train a model on the first ``documents`` of C4 files; return False if ``output`` is already that model.

    The same inputs give the same bytes: neither paths nor times enter the model. Each line of a document is a sentence,
    as in the file the reference's model was trained on. Raises InputError for bad input, and if SentencePiece cannot
    make such a model of it.
    """
    require_between(vocab_size, FEWEST_PIECES, LARGEST_ID, "--vocab-size")
    require_between(documents, 1, math.inf, "--documents")
    files = describe_inputs(inputs, bandwidth_limit=bandwidth_limit)
    options = {**TRAINING_OPTIONS, "vocab_size": vocab_size}
    made_with = {**options, "documents": documents}
    sources, versions = [file.source for file in files], versions_of("sentencepiece")
    recipe = Recipe("train-tokenizer", made_with, sources, versions, TRAINING_VERSION)
    with resumable_output(output, recipe, inputs=local_paths(files), force=force) as job:
        if job is None:
            return False
        model, new_path = _trained_model(files, documents, options), job.new_path()
        new_path.write_bytes(model)
        md5 = hashlib.md5(model, usedforsecurity=False).hexdigest()
        job.publish({output: (new_path, md5)}, [file.source_now() for file in files], {})
    return True


def _trained_model(files: Sequence[InputFile], documents: int, options: dict[str, Any]) -> bytes:
    """Return the bytes of a model. Raises InputError for bad input, and if SentencePiece cannot make such a model of
    this text."""
    model, unreadable = io.BytesIO(), list[InputError]()

    def sentences() -> Iterator[str]:
        texts = (text for file in files for _, text in documents_of(file))
        try:
            for text in itertools.islice(texts, documents):
                yield from filter(None, text.split("\n"))
        except InputError as error:  # SentencePiece would quote it with its traceback
            unreadable.append(error)
            raise

    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=sentences(), model_writer=model, minloglevel=2, **options
        )
    except RuntimeError as error:
        for reason in unreadable:
            raise reason from None
        raise InputError(_refusal(str(error), options)) from error
    return model.getvalue()


def _refusal(message: str, options: Mapping[str, Any]) -> str:
    """Describe the option to change, by SentencePiece's message; a message that is not known stays as it is."""
    for pattern, refusal in UNTRAINABLE.items():
        if match := re.search(pattern, message):
            return refusal.format(*match.groups(), **options)
    return f"training a tokenizer of {options['vocab_size']} pieces failed: {message}"


@dataclass(frozen=True, kw_only=True)
class TrainTokenizerCommand(InputOptions):
    """Train a SentencePiece BPE model with the reference's options.

    Example: python -m data_prep train-tokenizer --input en/c4-train.*.json.gz --output sentencepiece.model
    """

    output: Path
    """Model file to write."""
    vocab_size: int = VOCAB_SIZE
    """Number of pieces."""
    documents: int = DOCUMENTS
    """Number of documents to train on, from the first on."""

    def run(self) -> None:
        is_new = train_tokenizer(
            self.locations(),
            self.output,
            vocab_size=self.vocab_size,
            bandwidth_limit=self.bandwidth_limit,
            documents=self.documents,
            force=self.force,
        )
        self.tell(
            {"output": str(self.output), "made": is_new, "vocab_size": self.vocab_size},
            f"{self.output}: {self.vocab_size:,} pieces"
            if is_new
            else f"{self.output}: already made from these inputs",
        )
