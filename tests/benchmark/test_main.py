"""The commands: each has its help with an example, and errors are one line."""

import re
import subprocess
import sys

import pytest

from benchmark.__main__ import main
from benchmark.commands.command_table import COMMANDS
from benchmark.config.benchmarks import BENCHMARKS
from tests.support import REPOSITORY, command_here

NAMES = list(dict.fromkeys(row.name for row in COMMANDS))
ABOUT_RUNS = {
    "train": "--adam-beta1 NUMBER     [0.9]",
    "evaluate": "--adam-beta1 NUMBER     [0.9]",
    "plan": "--vocab-size N",
    "preflight": "--keep-every N",
}
"""Commands about runs, with an option that only ``--help-all`` lists."""


def test_list_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage: python -m benchmark COMMAND [options]\n")
    assert re.findall(r"^  (\S+)", shown, re.MULTILINE) == NAMES
    assert {"train", "evaluate", "review", "report", "reference-points"} <= set(NAMES)
    assert main([]) == 2
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    _, found, example = " ".join(capsys.readouterr().out.split()).partition("Example: ")
    assert found
    assert f"-m benchmark {name}" in example


@pytest.mark.parametrize("name", ABOUT_RUNS)
def test_commands_about_runs_have_their_options_first_and_the_others_on_demand(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "rehearsal", "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: python -m benchmark {name} BENCHMARK [--system NAME] [options]")
    words = " ".join(shown.split())  # lines are as wide as the terminal
    assert f"BENCHMARK: {', '.join(BENCHMARKS)}." in words and "(rehearsal: cpu_p2)" in words
    assert ABOUT_RUNS[name] not in shown
    hidden = re.search(r"--help-all lists (\d+) more options: ", shown)
    assert hidden is not None
    assert main([name, "--help-all"]) == 0
    everything = capsys.readouterr().out
    assert ABOUT_RUNS[name] in everything
    count = len(re.findall(r"^  --", everything, re.MULTILINE)) - len(re.findall(r"^  --", shown, re.MULTILINE))
    assert count == int(hidden[1])


def test_help_of_schedule_lists_the_options_that_it_reads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "rehearsal", "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage: python -m benchmark schedule BENCHMARK [options]")
    assert len(re.findall(r"^  --", shown, re.MULTILINE)) == 12


def test_help_and_refusals_need_no_pytorch() -> None:
    """They come before the seconds that PyTorch takes to import."""
    shown = ("--help", "--version", "train --help", "plan --help-all")
    refused = ["train rehearsal", "evaluate rehearsal", "replay nowhere --steps 1:2", "rehearse --package --seed 3"]
    refused += ["plan gpt3_175b --search --nodes 3"]
    refused += ["plan gpt3_175b --calibration nowhere", "describe-system --output README.md", "slice gpt3_175b"]
    code = f"""
import sys
sys.modules["torch"] = None
from benchmark.__main__ import main
from foundation.errors import InputError
print([main(line.split()) for line in {shown}])
for line in {refused}:
    try:
        print(main(line.split()))
    except InputError:
        print("refused")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("[0, 0, 0, 0]\n" + len(refused) * "refused\n")


def test_program_prints_its_help() -> None:
    done = command_here("benchmark", "--help")
    assert (done.returncode, "reference-points" in done.stdout, done.stderr) == (0, True, "")
