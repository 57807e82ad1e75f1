"""Searches: all layouts are looked at, the best come first, what falls out says why."""

import dataclasses

import pytest

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.systems import SYSTEMS
from benchmark.planning.run_plans import search_layouts as module
from benchmark.planning.run_plans.plan_options import PlannedRun, PlanOptions
from benchmark.planning.run_plans.plan_text import format_search
from benchmark.planning.run_plans.search_layouts import candidates, search_layouts
from benchmark.planning.step_model.machine_constants import committed_constants
from stage.errors import InputError

CONFIG = PlannedRun(
    benchmark=dataclasses.replace(GPT3_175B, global_batch_size=256),
    system=dataclasses.replace(SYSTEMS["dgxh100_n64"], nodes=16),
)


def test_candidates_cover_every_kind_of_layout() -> None:
    systems = [config.system for config in candidates(CONFIG)]
    assert len(systems) == len(set(systems))
    assert {system.tensor_parallel for system in systems} == {1, 2, 4, 8}
    assert {system.pipeline_parallel for system in systems} >= {1, 2, 4, 8, 16}
    assert max(system.pipeline_chunks for system in systems if system.pipeline_parallel == 8) == 12


def test_best_first_and_why_others_fall_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MICRO_BATCH_SIZES", (1,))
    monkeypatch.setattr(module, "MOST_PIPELINE", 8)
    monkeypatch.setattr(module, "RECOMPUTES", ("none",))
    found = search_layouts(CONFIG, PlanOptions(), committed_constants())
    runs = [layout.run_s for layout in found.best]
    assert runs == sorted(runs)
    assert len(runs) <= 10
    assert max(layout.memory_gb for layout in found.best) <= 72
    assert found.examined == len(list(candidates(CONFIG)))
    assert any(reason.startswith("memory: more than 72 of 80 GB") for reason in found.fallen_out)
    assert all(idea.gain >= 0 for idea in found.ideas)
    assert [idea.step_s for idea in found.ideas] == sorted(idea.step_s for idea in found.ideas)
    text = format_search(found, CONFIG)
    assert found.best[0].options in text
    assert "--what-if matmul=1.05x" in text


def test_where_nothing_fits_it_says_so() -> None:
    small = dataclasses.replace(CONFIG, system=dataclasses.replace(CONFIG.system, nodes=4))
    with pytest.raises(InputError, match=r"no layout of 32 devices can run: .* the smallest needs \d+ GB; add --nodes"):
        search_layouts(small, PlanOptions(), committed_constants())


def test_a_batch_that_no_layout_deals_out_is_told_apart_from_memory() -> None:
    large = dataclasses.replace(CONFIG, system=dataclasses.replace(CONFIG.system, nodes=100_000))
    with pytest.raises(InputError, match=r"change --nodes or --global-batch-size \(now 256\), a multiple of the data-"):
        search_layouts(large, PlanOptions(), committed_constants())
