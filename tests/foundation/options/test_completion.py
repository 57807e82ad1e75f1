"""The file of completions, read by bash: no Python is started at a TAB."""

import subprocess
from pathlib import Path

import pytest

from benchmark.commands.command_table import completions
from checksums.list_commands import VerifyListCommand
from foundation.options.command_help import options_of
from foundation.options.completion import bash_completion

PRESS = """
PATH=/nowhere
. "$1"
COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2))
_"${2}"_words "$2" "${@: -1}" "${@: -2:1}"
echo "${COMPREPLY[*]}"
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completions") / "both"
    path.write_text(completions() + bash_completion("checksums", {"verify": options_of(VerifyListCommand)}, {}))
    return path


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("benchmark", "tr"), "train"),
        (("benchmark", "train", "gpt"), "gpt3_175b"),
        (("benchmark", "train", "gpt3_175b", "--sys"), "--system"),
        (("benchmark", "train", "gpt3_175b", "--system", "cpu"), "cpu_p2 cpu_p1"),
        (("benchmark", "train", "gpt3_175b", "--precision", ""), "bf16 fp32 fp8"),
        (("benchmark", "preflight", "--fir"), "--first-contact"),
        (("benchmark", "evaluate", "rehearsal", "--save-int"), ""),  # it reads no such option
        (("benchmark", "rehearse", "rehearsal_"), "rehearsal_llama"),
        (("checksums", "verify", "--man"), "--manifest"),
    ],
)
def test_a_tab_offers_what_fits(words: tuple[str, ...], offered: str, file: Path) -> None:
    process = subprocess.run(["/bin/bash", "-c", PRESS, "-", file, *words], capture_output=True, text=True, check=False)
    assert (process.stdout, process.stderr) == (f"{offered}\n", "")
