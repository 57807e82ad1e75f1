"""Tokenizers in Hugging Face's form, a ``tokenizer.json``, which the library ``tokenizers`` reads and runs.

Ids are those that ``transformers`` gives without special tokens around the text, as in the preparation of Llama's data
(docs/facts/llama31_8b.md 3; mlcommons/training, small_llm_pretraining/nemo/README.md).
"""

from collections.abc import Sequence
from pathlib import Path

from stage.errors import InputError, first_line
from stage.json_files import LARGEST_JSON, read_bounded
from stage.optional_packages import import_optional
from stage.outputs.manifest import require_intact

LARGEST_ID = 1 << 24


class JsonTokenizer:
    """Convert text to token ids, without the tokens that the file would put before or behind a text.

    Raises InputError for a file that is no tokenizer, differs from its manifest, or merges at random.
    """

    package = "tokenizers"

    def __init__(self, path: Path) -> None:
        if not path.is_file():
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

    def _refused(self, what: str, error: BaseException) -> BaseException:
        """Return the error to raise for one of the library, which has no class of its own, not even for panics."""
        if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
            return error
        return InputError(f"{self.path}: {what} ({first_line(error)})")

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
