"""Parts of a run that its chain does not cover."""

import dataclasses
from pathlib import Path
from typing import Any

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import Benchmark
from benchmark.evidence.chain_coverage import coverage_gaps
from benchmark.evidence.chain_links import EVIDENCE, read_chain
from benchmark.evidence.link_contents import Content
from benchmark.results.mllog import read_log
from tests.benchmark.evidence.test_chain_and_log import TOKENS, log_of
from tests.benchmark.evidence.test_chain_checks import HONEST
from tests.benchmark.evidence.test_chain_links import BEGIN, write
from tests.benchmark.tiny import TINY

Record = tuple[str, Any, dict[str, Any]]
STOPPED: tuple[Record, ...] = (
    ("eval_accuracy", 2.75, {"epoch_num": 4 * TOKENS}),
    ("run_stop", None, {"status": "success"}),
    ("train_samples", 4 * TOKENS, {}),
)


def gaps(contents: list[Content], folder: Path, *records: Record, benchmark: Benchmark = TINY) -> list[str]:
    write(folder / EVIDENCE, contents)
    log = read_log(log_of(folder / "result_0.txt", *records))
    return [one.line() for one in coverage_gaps(read_chain(folder / EVIDENCE), log, benchmark)]


def test_the_whole_run(tmp_path: Path) -> None:
    assert gaps(HONEST, tmp_path, *STOPPED) == []


def test_a_run_that_goes_on_has_no_end_yet(tmp_path: Path) -> None:
    assert gaps(HONEST[:4], tmp_path, ("run_start", None, {})) == []
    end = "the chain's end: recorded none, found the log has one; the log's digest is due"
    assert gaps(HONEST[:4], tmp_path, ("run_stop", None, {"status": "aborted"})) == [end]


def test_what_is_cut_off_is_counted(tmp_path: Path) -> None:
    lines = gaps(HONEST[:4], tmp_path, *STOPPED)
    found = f"{4 * TOKENS:,} tokens in the log, 4 steps (no links of the others)"
    assert lines[0] == f"the chain's last step: recorded 3, found {found}"
    assert gaps([], tmp_path, *STOPPED) == []  # no chain at all: test_chain_checks.py


def test_a_chain_that_begins_later(tmp_path: Path) -> None:
    later: list[Content] = [dataclasses.replace(BEGIN, step=2, time_ms=1002), *HONEST[3:]]
    line = "the beginning: recorded after 2 steps, found no links of the steps before"
    assert gaps(later, tmp_path, *STOPPED) == [line]


def test_values_of_any_kind(tmp_path: Path) -> None:
    values: tuple[Any, ...] = (None, [], True, 1e308, "x", -(10**30), float("nan"))
    for value in values:
        assert gaps(HONEST, tmp_path, ("eval_accuracy", 1, {"epoch_num": value}), ("train_samples", value, {})) == []


def test_the_published_inputs_have_sums(tmp_path: Path) -> None:
    """Other data have none that a reviewer could compare."""
    of_175b = dataclasses.replace(TINY, mlperf_name=GPT3_175B.mlperf_name)
    line = "MD5 sums of the inputs: recorded none, found those of data and checkpoint, which are published"
    assert gaps(HONEST, tmp_path, *STOPPED, benchmark=of_175b) == [line]
    begin = dataclasses.replace(BEGIN, inputs={"train.bin": None, "train.idx": "ab" * 16})
    assert gaps([begin, *HONEST[1:]], tmp_path, *STOPPED, benchmark=of_175b) == []
