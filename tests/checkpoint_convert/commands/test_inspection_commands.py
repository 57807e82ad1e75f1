"""inspect and compare as a user runs them: exit status, and one line for bad input."""

from pathlib import Path

import pytest

from tests.checkpoint_convert.in_process import run


def test_status_of_compare(megatron: dict[str, Path]) -> None:
    assert run("compare", megatron["bf16"], megatron["bf16"]).returncode == 0
    assert run("compare", megatron["bf16"], megatron["fp32"]).returncode == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("inspect", "none"), "none: no such folder"),
        (("compare", "none", "none"), "none: no such folder"),
        (("inspect", "none", "--workers", "0"), "--workers 0: expected 1 to 4096"),
    ],
)
def test_bad_input_is_one_line(words: tuple[str, ...], told: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert told in done.stderr
