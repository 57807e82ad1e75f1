"""The names of a run's files are spelt in benchmark/run_record/file_names.py alone."""

import ast
import fnmatch
import re
from collections.abc import Iterator

from benchmark.run_record import file_names
from checkpoint_convert.formats import step_files
from tests.house.rooms import House
from tests.support import REPOSITORY

HOUSE = House(REPOSITORY)

OUTSIDE = ("result_*.txt", "slurm_*.out")
"""Patterns of names that are made of a number."""
NAMES = {value for name, value in vars(file_names).items() if name.isupper() and isinstance(value, str)}
WITH_SUFFIX = {name for name in NAMES if "." in name}
PART_OF_PATH = re.compile(rf"""["'/](?:{"|".join(map(re.escape, NAMES))})["'/]|(?:result|slurm)_""")
"""Stands in each module that spells a name."""
JOINED = ("joinpath", "with_name", "glob", "rglob", "match", "Path")
"""Calls whose arguments are names of files."""


def texts_in(node: ast.AST) -> Iterator[str]:
    """Yield the text of a constant or an f-string, with "*" for what is put in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values)


def spelt(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of the names that ``source`` spells: with their suffix anywhere, others in a path."""
    for node in ast.walk(ast.parse(source)) if PART_OF_PATH.search(source) else ():
        paths: list[ast.expr] = []
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            paths = [node.left, node.right]
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            paths = node.args if name in JOINED else []
        for path in paths:
            yield from ((path.lineno, text) for text in texts_in(path) if NAMES & {*text.split("/")})
        if isinstance(node, ast.expr):
            for text in texts_in(node):
                if text in WITH_SUFFIX or any(fnmatch.fnmatchcase(text, pattern) for pattern in OUTSIDE):
                    yield node.lineno, text


def test_names_of_a_runs_files_are_spelt_once() -> None:
    modules = [module for module in HOUSE.files if module.startswith("benchmark.") and module != file_names.__name__]
    assert len(modules) > 150
    places = {f"{module}:{line}: {text}" for module in modules for line, text in spelt(HOUSE.files[module].read_text())}
    assert places == set()


def test_the_search_finds_names() -> None:
    source = """
a = folder / "summary.json"
b = folder.joinpath("attempts", name)
c = f"result_{number}.txt"
d = Path("checkpoints")
e = {"attempts": 1, "checkpoints": 2}
f = "summary.json could not be read"
"""
    assert sorted({line for line, _ in spelt(source)}) == [2, 3, 4, 5]


def test_conversion_reads_a_runs_checkpoint_by_the_same_names() -> None:
    """It lies below the record of a run, and repeats three names."""
    own = {step_files.CONFIG, step_files.CHECKPOINTS, step_files.PROGRESS}
    assert own == {file_names.CONFIG_FILE, file_names.CHECKPOINTS_FOLDER, file_names.PROGRESS_FILE}
