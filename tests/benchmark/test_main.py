"""The commands: each has its help with an example, and errors are one line."""

import re
import subprocess
import sys

import pytest

from benchmark.__main__ import main
from benchmark.commands.command_table import COMMANDS
from benchmark.config.benchmarks import BENCHMARKS
from tests.support import REPOSITORY, assert_refused, command

ABOUT_RUNS = ("train", "evaluate", "schedule", "plan", "preflight")


def test_list_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage: python -m benchmark COMMAND [options]\n")
    assert [line.split()[0] for line in shown.splitlines() if line.startswith("  ")] == list(COMMANDS)
    assert {"train", "evaluate", "review", "report", "reference-points"} <= set(COMMANDS)
    assert main([]) == 2
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("name", COMMANDS)
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
    assert f"BENCHMARK: {', '.join(BENCHMARKS)}." in shown and "(rehearsal: cpu_p2)" in shown
    assert "--adam-beta1" not in shown
    told = re.search(r"--help-all lists (\d+) more options: ", shown)
    assert told is not None
    assert main([name, "--help-all"]) == 0
    everything = capsys.readouterr().out
    assert "--adam-beta1 NUMBER     [0.9]" in everything
    count = len(re.findall(r"^  --", everything, re.MULTILINE)) - len(re.findall(r"^  --", shown, re.MULTILINE))
    assert count == int(told[1])


def test_help_and_version_need_no_pytorch() -> None:
    words = (["--help"], ["--version"], ["train", "--help"], ["plan", "--help-all"])
    code = f"import sys; sys.modules['torch'] = None; from benchmark.__main__ import main; print([*map(main, {words})])"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("[0, 0, 0, 0]\n")


def test_program_prints_errors_in_one_line() -> None:
    assert_refused(
        command("benchmark", "trian"), "unknown command 'trian'; did you mean train? There are train, evaluate"
    )
    done = command("benchmark", "--help")
    assert (done.returncode, "reference-points" in done.stdout, done.stderr) == (0, True, "")
