"""Commands that try the whole path at a small size: what they refuse."""

import pytest

from benchmark.commands.command_table import parse
from stage.errors import InputError


def test_a_seed_that_is_no_number_is_refused() -> None:
    with pytest.raises(InputError, match="--seed"):
        parse(["rehearse", "--seed", "many"])
