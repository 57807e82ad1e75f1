"""The official tools are those that were read for docs/notes/official_tools.md; a new version is read first."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import mlperf_logging.benchmark_meta

SOURCES = Path(mlperf_logging.benchmark_meta.__file__).parent
LOOKED_FOR = (
    "eval", "exec", "compile", "open", "__import__", "import_module", "system", "popen", "run", "Popen", "urlopen",
    "load", "loads", "glob", "listdir", "walk", "remove", "readlink", "literal_eval", "getattr", "setattr", "format",
)  # fmt: skip
NOT_CALLED = ("mllog", "result_summarizer/compute_score")
"""Folders of which no tool that the review runs imports anything."""
READ = {
    "benchmark_meta.py": {"format": 3},
    "compliance_checker/mlp_compliance.py": {"eval": 3, "exec": 3, "format": 3, "listdir": 2, "load": 1, "open": 1},
    "package_checker/package_checker.py": {"format": 4, "glob": 3, "listdir": 1, "load": 1, "open": 3},
    "package_checker/power_checker.py": {"listdir": 1},
    "package_checker/seed_checker.py": {"format": 5, "open": 1, "walk": 1},
    "rcp_checker/rcp_checker.py": {"format": 5, "glob": 1, "load": 2, "loads": 11, "open": 3, "remove": 1},
    "repo_checker/repo_checker.py": {"readlink": 1, "walk": 2},
    "result_summarizer/result_summarizer.py": {
        "format": 46, "glob": 5, "listdir": 2, "load": 1, "loads": 1, "open": 5,
    },
    "system_desc_checker/system_desc_checker.py": {"format": 5, "load": 1, "open": 1},
}  # fmt: skip
PARSER = {"format": 2, "loads": 1, "open": 1}
"""Calls of each module that parses the logs of one ruleset."""


def calls(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = node.func
            name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
            if name in LOOKED_FOR:
                yield name


def test_no_call_has_been_added_to_the_official_tools() -> None:
    counts = {str(path.relative_to(SOURCES)): Counter(calls(path)) for path in sorted(SOURCES.rglob("*.py"))}
    called = {path: {**count} for path, count in counts.items() if count and not path.startswith(NOT_CALLED)}
    parsers = {path: called.pop(path) for path in list(called) if "/mlp_parser/ruleset_" in path}
    assert called == READ
    assert len(parsers) > 10
    oldest = parsers.pop("compliance_checker/mlp_parser/ruleset_060.py")
    assert all(count == PARSER for count in parsers.values()), parsers
    assert oldest == {**PARSER, "compile": 1}
