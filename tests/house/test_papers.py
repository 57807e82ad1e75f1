"""README and manuals: their commands exist with the options they give them, their links and files too."""

import importlib.util
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from benchmark.commands.command_table import parse
from tests.support import REPOSITORY, command_here

PAPERS = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md")] + sorted(
    path for path in (REPOSITORY / "docs").rglob("*.md")
)
NAMED = [pytest.param(path, id=path.relative_to(REPOSITORY).as_posix()) for path in PAPERS]
PLACEHOLDER = re.compile(r"[…$*{]")
"""In a command line that stands for several."""
PROGRAMS = ("benchmark", "checkpoint_convert", "checksums", "data_prep")


def command_blocks(text: str) -> list[str]:
    """Blocks without a language are commands; what these print is marked as text, drawings as mermaid."""
    return [block for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.M) if not language]


def command_lines(text: str) -> Iterator[str]:
    """Lines of commands, continued ones joined, and code within the text."""
    for block in command_blocks(text):
        yield from re.sub(r" *\\\n *", " ", block).splitlines()
    without_blocks = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    yield from (line.replace("\n", " ") for line in re.findall(r"`([^`]+)`", without_blocks))


def program_lines(path: Path) -> Iterator[tuple[str, str, str]]:
    """Program, command and the words behind it, comments left out."""
    for line in command_lines(path.read_text()):
        found = re.search(rf"-m ({'|'.join(PROGRAMS)}) ([a-z][\w-]*)(.*)", line)
        if found:
            program, name, words = found.groups()
            yield program, name, re.split(r"\s#\s|\s\|\s|[;)]", words)[0].rstrip('"')


@cache
def help_of(program: str, name: str, benchmark: str) -> str:
    done = command_here(program, name, *filter(None, [benchmark]), "--help-all")
    assert done.returncode == 0, (program, name, done.stderr)
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("path", NAMED)
def test_commands_and_their_options_exist(path: Path) -> None:
    for program, name, words in program_lines(path):
        benchmark = next((word for word in words.split()[:1] if word in ("gpt3_175b", "rehearsal")), "")
        options = re.findall(r"(?<=\s)--[a-z][\w-]*", words)
        if program == "benchmark" and name in ("train", "evaluate", "schedule", "plan"):
            benchmark = benchmark or "gpt3_175b"
        if name == "preflight" and "--first-contact" in words.split():
            benchmark = "--first-contact"  # has options of its own
        told = help_of(program, name, benchmark)
        for option in options:
            assert option in told or option in ("--system", "--help"), (path.name, program, name, option)
        if (
            program == "benchmark"
            and (benchmark in words.split()[:1])
            and not PLACEHOLDER.search(words)
            and "--help" not in words
        ):
            parse([name, *shlex.split(words)])


@pytest.mark.parametrize("path", NAMED)
def test_blocks_of_commands_parse(path: Path) -> None:
    """As bash reads them; and what they run of tests/ is there."""
    for block in [] if path.parent.name == "facts" else command_blocks(path.read_text()):
        done = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.stderr, block)
        for module in re.findall(r"-m (tests(?:\.\w+)+)", block):
            assert importlib.util.find_spec(module) is not None, module


@pytest.mark.parametrize("path", NAMED)
def test_files_and_links_exist(path: Path) -> None:
    text = path.read_text()
    assert not re.search("^(<<<<<<<|>>>>>>>) ", text, re.MULTILINE), f"{path.name}: an unsettled merge"
    of_others = path.parent.name == "facts"  # files of other projects
    for name in [] if of_others else re.findall(rf"`((?:{'|'.join(PROGRAMS)}|docs|model|stage|tests)/[\w./-]*)`", text):
        assert (REPOSITORY / name).exists(), (path.name, name)
    for target, anchor in re.findall(r"\]\((?!http)([^)#]*)(#[^)]*)?\)", text):
        page = path.parent / target if target else path
        assert page.exists(), (path.name, target)
        if anchor:
            headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor[1:] in anchors, (path.name, target, anchor)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a paper; a heading, an item of a list and a cell of a table end one, too."""
    text = re.sub(r"^```.*?^```$|^#.*$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    for block in re.split(r"\n\s*\n|^(?=- |\d+\. )|\|", text, flags=re.MULTILINE):
        yield from re.split(r"(?<=[.!?])\s+", " ".join(block.split()))


def test_no_sentence_has_more_than_35_words() -> None:
    assert [*map(len, map(str.split, sentences("One. Two (b)!\n- three four | five [six](seven).\n")))] == [1, 2, 3, 2]
    for path in (path for path in PAPERS if path.parent.name != "facts"):
        assert [text for text in sentences(path.read_text()) if len(text.split()) > 35] == [], path.name


def test_readme_is_a_page_and_maps_the_folders_early() -> None:
    lines = (REPOSITORY / "README.md").read_text().splitlines()
    assert len(lines) <= 110
    mapped = [number for number, line in enumerate(lines, 1) if re.match(r"\| `\w+/", line)]
    assert mapped[-1] <= 60
    told = "\n".join(lines[: mapped[-1]])
    for folder in REPOSITORY.iterdir():
        if (folder / "__init__.py").is_file():
            assert f"`{folder.name}/" in told, folder.name


def commands_of(program: str) -> set[str]:
    """The commands of a program, as it tells them to whoever names another."""
    told = re.search(r"[tT]here are (.*)", command_here(program, "no-such-command").stderr)
    assert told is not None
    return set(told[1].split(", "))


@pytest.mark.parametrize("program", PROGRAMS)
def test_readme_lists_every_command(program: str) -> None:
    (row,) = re.findall(rf"^\| `{program}` \|(.*)\|$", (REPOSITORY / "README.md").read_text(), re.MULTILINE)
    assert set(re.findall(r"`([a-z-]+)`", row)) == commands_of(program)


def test_the_readmes_table_is_the_folder_listing() -> None:
    listed = re.findall(r"^\| `(\w+/(?:\w+/)?)` \|", (REPOSITORY / "README.md").read_text(), re.MULTILINE)
    tracked = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    folders = set()
    for path in map(Path, tracked.splitlines()):
        depth = 2 if path.parts[0] == "benchmark" else 1
        if len(path.parts) > depth and not path.parts[0].startswith("."):
            folders.add("/".join(path.parts[:depth]) + "/")
    assert sorted(listed) == sorted(folders)
