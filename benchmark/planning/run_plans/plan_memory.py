"""What the rank that needs most would hold: of the dry run where there is one, by formula for other stacks."""

import dataclasses

from benchmark.config.accelerators import ACCELERATORS
from benchmark.config.run_config import RunConfig
from benchmark.planning.dry_runs.dry_run import RESERVE, DryRun
from benchmark.planning.run_plans.plan_options import PlanOptions, planned_workload
from benchmark.planning.step_model.memory_formula import MemoryNeed, memory_need


def planned_memory(
    config: RunConfig, examined: DryRun | None, options: PlanOptions
) -> tuple[dict[str, float], bool | None, str]:
    """Bytes by kind on the rank that needs most, whether that fits, and why not or where from."""
    accelerator = config.system.accelerator
    memory_gb = ACCELERATORS[accelerator].memory_gb if accelerator else None
    if examined is not None:
        worst = max(examined.reports, key=lambda report: report.peak_bytes)
        kinds = ("parameter", "optimizer", "gathered", "gradient", "activation", "peak")
        need = {kind: float(getattr(worst, f"{kind}_bytes")) for kind in kinds}
        return need, (None if memory_gb is None else examined.complaint is None), ""
    formula: MemoryNeed = memory_need(planned_workload(config, options))
    need = {**dataclasses.asdict(formula), "peak": formula.total}
    if memory_gb is None:
        return need, None, "memory by formula (arXiv 2205.05198, section 4)"
    fits = formula.total <= memory_gb * 1e9 * (1 - RESERVE)
    told = f"memory by formula: {formula.total / 1e9:.1f} GB of {accelerator}'s {memory_gb:.0f}"
    advice = "; raise --tensor-parallel, --pipeline-parallel or --nodes, or choose --recompute selective or full"
    return need, fits, told if fits else f"{told}, of which {RESERVE:.0%} stay free{advice}"
