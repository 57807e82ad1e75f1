"""Plans: the benchmark's checkpoint within its memory, and what is really done."""

from pathlib import Path

import pytest

from checkpoint_convert.conversion.conversion_plan import plan_paxml_to_megatron
from checkpoint_convert.conversion.paxml_to_megatron import paxml_to_megatron
from checksums.md5_list import read_list
from stage.errors import InputError
from tests.checkpoint_convert.tiny import GIB
from tests.support import command


def test_plan_of_the_benchmarks_checkpoint() -> None:
    plans = {
        name: plan_paxml_to_megatron(None, dtype=name, workers=2, memory_limit=8 * GIB) for name in ("fp32", "bf16")
    }
    assert sum(plan.output_files for plan in plans["fp32"]) == 92_640
    assert sum(plan.output_files for plan in plans["bf16"]) == 123_520
    assert sum(plan.output_bytes for plan in plans["fp32"]) == 3 * 4 * 174_615_846_912
    assert all(plan.passes == 1 and plan.peak_bytes <= 8 * GIB for plan in plans["bf16"])
    tight = plan_paxml_to_megatron(None, dtype="bf16", workers=2, memory_limit=2 * GIB)
    assert all(plan.passes >= 1 and plan.peak_bytes <= 2 * GIB for plan in tight)
    with pytest.raises(InputError, match="--memory-limit is too small"):
        plan_paxml_to_megatron(None, dtype="bf16", workers=2, memory_limit=GIB // 4)


def test_plan_is_what_is_done(paxml: Path, tmp_path: Path) -> None:
    arguments = ["--input", paxml, "--output", tmp_path / "out", "--dtype", "bf16", "--plan"]
    done = command("checkpoint_convert", "paxml-to-megatron", *arguments)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
    paxml_to_megatron(paxml, tmp_path / "out", dtype="bf16", workers=1, memory_limit=GIB)
    assert f"{len(read_list(tmp_path / 'out.md5')):,} files" in done.stdout
