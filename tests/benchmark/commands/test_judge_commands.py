"""Commands about results: what they need."""

import pytest

from benchmark.commands.command_table import parse
from stage.errors import InputError


@pytest.mark.parametrize(
    ("name", "option"), [("report", "--output"), ("package", "--org"), ("describe-system", "--out-put")]
)
def test_missing_and_unknown_options_are_named(name: str, option: str) -> None:
    arguments = [name, option, "x"] if name == "describe-system" else [name]
    with pytest.raises(InputError, match=option):
        parse(arguments)
