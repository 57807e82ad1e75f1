"""Where a text may be cut, as read off the model."""

import numpy as np

from data_prep.tokenizing.cut_rules import cut_rules
from tests.data_prep.models import Models


def test_rules_are_read_off_the_model(models: Models) -> None:
    rules = cut_rules(models["reference"].read_bytes())
    assert rules.newline_is_space
    assert [chr(code) for code in np.flatnonzero(rules.plain)] == [chr(code) for code in range(0x21, 0x7F)]
    assert not cut_rules(models["as it is"].read_bytes()).newline_is_space
    lower_case = cut_rules(models["lower case"].read_bytes()).plain
    assert not lower_case[ord("A")] and lower_case[ord("a")]
