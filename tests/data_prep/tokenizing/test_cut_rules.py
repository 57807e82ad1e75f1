"""Where a text may be cut, as read off the model."""

import numpy as np
import pytest

from data_prep.tokenizing.cut_rules import ALWAYS, IF_PLAIN_FOLLOWS, NEVER, NoGuarantee, cut_rules
from tests.data_prep.models import MODELS, Models


def test_rules_are_read_off_the_model(models: Models) -> None:
    rules = cut_rules(models["reference"].read_bytes())
    assert rules.newline_is_space
    assert [chr(code) for code in np.flatnonzero(rules.plain)] == [chr(code) for code in range(0x21, 0x7F)]
    assert not cut_rules(models["as it is"].read_bytes()).newline_is_space
    lower_case = cut_rules(models["lower case"].read_bytes()).plain
    assert not lower_case[ord("A")] and lower_case[ord("a")]


def test_places_between_two_characters(models: Models) -> None:
    rules = cut_rules(models["reference"].read_bytes())

    def between(pair: str) -> int:
        return int(rules.between[ord(pair[0]) << 8 | ord(pair[1])])

    assert between("a ") == between("  ") == ALWAYS  # pieces hold a space only in front
    assert between("th") == between(" t") == NEVER  # side by side in a piece
    assert between("7~") == between("~q") == IF_PLAIN_FOLLOWS
    assert int(rules.between[0xC3 << 8 | ord("x")]) == NEVER  # within or behind a character that is not plain


@pytest.mark.parametrize("name", [name for name, (_, reason) in MODELS.items() if reason is not None])
def test_models_without_a_guarantee_say_why(name: str, models: Models) -> None:
    with pytest.raises(NoGuarantee, match=str(MODELS[name][1])):
        cut_rules(models[name].read_bytes())


def test_what_is_no_model_has_no_guarantee() -> None:
    with pytest.raises(NoGuarantee, match="its description cannot be read"):
        cut_rules(b"no model")
