"""Options that several commands have."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from data_prep.corpus.input_files import Place, parse_inputs


@dataclass(frozen=True, kw_only=True)
class JsonOption:
    """A command whose result scripts can read."""

    json: bool = False
    """Print the result as JSON."""

    def tell(self, result: Any, text: str) -> None:
        """Print ``result`` as JSON, or ``text`` for a person."""
        print(json.dumps(result) if self.json else text)


@dataclass(frozen=True, kw_only=True)
class OutputOptions(JsonOption):
    """A command that makes an output with a manifest."""

    force: bool = False
    """Replace the output if this command made it."""


@dataclass(frozen=True, kw_only=True)
class InputOptions(OutputOptions):
    """A command that reads text in C4's format."""

    input: tuple[str, ...]
    """Files of JSON lines with a "text" each, also packed (.gz, .zst); by path or by address: s3://, gs://, http:// or
    https://."""
    endpoint_url: str | None = None
    """The address of an S3 server that is not Amazon's, such as http://127.0.0.1:9000."""
    bandwidth_limit: str | None = None
    """Most bytes that this command reads from addresses per second: a size such as 500MB, divided evenly among the
    files that are read at the same time."""

    def places(self) -> Sequence[Place]:
        """Return the inputs. Raises InputError for an address that cannot be read."""
        return parse_inputs(self.input, self.endpoint_url)
