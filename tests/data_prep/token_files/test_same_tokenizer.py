"""Datasets that are mixed are of one tokenizer, as far as their manifests tell."""

from pathlib import Path
from typing import Any

import pytest

from data_prep.token_files.same_tokenizer import require_same_tokenizer
from stage.errors import InputError
from stage.outputs.manifest import Recipe, made_by, write_manifest
from tests.support import write_dataset

OPTIONS = {"vocab_size": 100, "append_eod": False, "tokenizer": "md5:0"}


def dataset(prefix: Path, options: dict[str, Any] | None, vocab_size: int = 100) -> Path:
    write_dataset(prefix, [3, 4], vocab_size=vocab_size)
    if options is not None:
        write_manifest(prefix, made_by(Recipe("preprocess", options, []), [], wall_s=0.0))
    return prefix


def test_what_one_manifest_lacks_is_taken_from_another(tmp_path: Path) -> None:
    made = [dataset(tmp_path / "a", None), dataset(tmp_path / "b", OPTIONS)]
    assert require_same_tokenizer(made).as_options() == {"dtype": "uint16", **OPTIONS}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"vocab_size": 101}, r"different vocabulary \(101 and 100\)"),
        ({"append_eod": True}, "different end-of-document setting"),
        ({"tokenizer": "md5:1"}, "different tokenizer do not belong together"),
    ],
)
def test_others_are_refused(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    made = [dataset(tmp_path / "a", OPTIONS), dataset(tmp_path / "b", {**OPTIONS, **change})]
    with pytest.raises(InputError, match=told):
        require_same_tokenizer(made)


def test_ids_of_two_widths_only_where_that_is_allowed(tmp_path: Path) -> None:
    made = [dataset(tmp_path / "a", None), dataset(tmp_path / "b", None, vocab_size=70_000)]
    with pytest.raises(InputError, match="different dtype"):
        require_same_tokenizer(made)
    require_same_tokenizer(made, any_dtype=True)
