"""``slice --tune-collectives``: made-up times of every way to send messages, and what is made of them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmark.config.system_config import Collectives, read_system
from benchmark.planning.slice import tuned_collectives as module
from benchmark.planning.slice.run_slice import run_slice
from benchmark.planning.slice.slice_config import SliceOptions
from benchmark.planning.slice.slice_result import slice_lines
from benchmark.planning.slice.tuned_collectives import ways
from foundation.errors import InputError
from tests.benchmark.planning.slice.samples import measurement
from tests.benchmark.planning.slice.test_run_slice import on_h100s

BEST = Collectives(8, nccl_priority=True, copy_engines="gathers")


def on_made_up_times(monkeypatch: pytest.MonkeyPatch, times: dict[Collectives, float], usual_s: float | None) -> None:
    """Two processes, whose slower one takes ``times``, or else ``usual_s``; None: they say why they fail."""

    def ended(function: Any, arguments: Sequence[Any], *, log: Path, limit_s: float, **_: Any) -> int:
        plan, folder, trace = arguments
        assert (function.keywords, trace) == ({"only_steps": True}, None)
        step_s = times.get(plan.system.collectives, usual_s)
        if step_s is None:
            log.write_text("noise\nRuntimeError: no peer access")
            return 1
        for rank in range(2):
            found = measurement(rank, (step_s - 0.1 * (1 - rank), 9.0, step_s), on_gpu=True)
            (folder / f"rank_{rank}").write_bytes(msgspec.msgpack.encode(found))
        return 0

    on_h100s(monkeypatch, 0, "", measurement(0, (2.0,), on_gpu=True))
    monkeypatch.setattr(module, "run_ranks", ended)


def options(output: Path) -> SliceOptions:
    return SliceOptions("gpt3_175b", tensor_parallel=2, output=output, tune_collectives=True)


def test_the_fastest_way_is_written_where_a_run_reads_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    second = Collectives(nccl_priority=True)
    monkeypatch.setattr(module, "ways", lambda: [Collectives(), second, BEST, Collectives(copy_engines="all")])
    on_made_up_times(monkeypatch, {Collectives(): 0.87, second: 0.9, BEST: 0.8}, None)
    result, calibration = run_slice(options(tmp_path))
    assert [(one["options"], one["step_s"]) for one in result["collectives"]] == [
        ("", 0.87),
        ("--nccl-priority", 0.9),
        ("--nccl-ctas 8 --nccl-priority --copy-engines gathers", 0.8),
        ("--copy-engines all", None),
    ]
    assert json.loads((tmp_path / "slice.json").read_text())["collectives"] == result["collectives"]
    assert read_system(tmp_path / "system.toml").collectives == BEST
    assert list(slice_lines(result, calibration))[-2:] == [
        "3 ways timed; fastest 0.8 s a step: --nccl-ctas 8 --nccl-priority --copy-engines gathers (system.toml); the "
        "usual one 0.87 s",
        "NOT timed: --copy-engines all: RuntimeError: no peer access",
    ]


@pytest.mark.parametrize("usual_s", [0.9, None])
def test_the_usual_way_stays_where_none_is_faster(
    usual_s: float | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on_made_up_times(monkeypatch, {}, usual_s)
    result, _ = run_slice(options(tmp_path))
    assert [one["step_s"] for one in result["collectives"]] == [usual_s] * len(ways())
    assert read_system(tmp_path / "system.toml").collectives == Collectives()


def test_all_combinations_are_tried_once_and_the_usual_one_first_and_last() -> None:
    every = ways()
    assert every[0] == every[-1] == Collectives()
    assert len(set(every)) == len(every) - 1 == 4 * 2 * 2 + 1 + 2 + 1
    assert BEST in every


def test_one_gpu_sends_nothing() -> None:
    for fields in ({}, {"device": "cpu", "tensor_parallel": 2}):
        with pytest.raises(InputError, match=r"tune_collectives: c.*: expected several GPUs"):
            SliceOptions("gpt3_175b", tune_collectives=True, **fields)  # type: ignore[arg-type]
