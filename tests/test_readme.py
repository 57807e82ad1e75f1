"""The README's commands exist, with the options it gives them, and its links to files hold."""

import re

from tests.support import REPOSITORY, command

README = (REPOSITORY / "README.md").read_text()


def _commands() -> list[str]:
    """Every command line in the README: lines of code blocks, and code within the text."""
    blocks = re.findall(r"```\n(.*?)```", README, flags=re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    text = re.sub(r"```\n.*?```", "", README, flags=re.DOTALL)
    return [*lines, *re.findall(r"`([^`]+)`", text)]


def test_commands_and_options_exist() -> None:
    seen = set()
    for line in _commands():
        for module, name, arguments in re.findall(r"python -m (\w+) ([\w-]+)(.*)", line, flags=re.DOTALL):
            benchmark = [word for word in arguments.split()[:1] if word == "gpt3_175b"]
            done = command(module, name, *benchmark, "--help")
            assert done.returncode == 0, (module, name)
            for option in re.findall(r"(?<=\s)--[a-z][\w-]*", arguments):
                assert option in done.stdout, (module, name, option)
            seen.add(f"{module} {name}")
    assert seen >= {
        "data_prep preprocess",
        "data_prep samples",
        "checksums verify",
        "checkpoint_convert paxml-to-megatron",
        "benchmark evaluate",
        "benchmark schedule",
        "benchmark review",
    }


def test_files_it_names_exist() -> None:
    names = set(re.findall(r"`((?:benchmark|checksums|tests|model|stage)/[\w./]+)`", README))
    assert len(names) >= 6
    for name in names:
        assert (REPOSITORY / name).exists(), name
