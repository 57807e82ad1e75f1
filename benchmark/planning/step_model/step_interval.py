"""Estimate the error of a predicted step from the errors on published steps and from constants that were not
measured."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from benchmark.planning.step_model.machine_constants import Constant, values_of
from benchmark.planning.step_model.simulated_step import StepParts, simulate_step
from benchmark.planning.step_model.workload import Workload


@dataclass(frozen=True)
class Influence:
    """Change of a step when a constant moves to the ends of its plausible range."""

    constant: str
    source: str
    low_s: float
    high_s: float
    """Larger change of the step in seconds; ``low_s`` is the smaller one."""


@dataclass(frozen=True)
class StepInterval:
    """A predicted step with its uncertainty; nine of ten measured steps should lie from ``low_s`` to ``high_s``."""

    parts: StepParts
    low_s: float
    high_s: float
    influences: tuple[Influence, ...]
    """Influences of constants that no published step depends on, the largest first."""

    @property
    def step_s(self) -> float:
        return self.parts.total


def predict_step(work: Workload, constants: Mapping[str, Constant]) -> StepInterval:
    """Return the step and its interval.

    The stack's error in the backtest covers the constants that published steps depended on. Constants of the stack and
    the accelerator that are not ``backed`` by published steps are moved through their ranges one at a time, and
    messages that nobody has measured as hidden are exposed; these influences and that error are independent, so that
    their squares add up.
    """
    values = values_of(constants)
    parts = simulate_step(work, values)
    own = (f"accelerators.{work.accelerator}.", f"stacks.{work.stack}.")
    influences = []
    for name, constant in constants.items():
        if name.startswith(own) and not constant.backed and constant.low < constant.high:
            changes = [
                simulate_step(work, {**values, name: end}).total - parts.total for end in (constant.low, constant.high)
            ]
            influences.append(Influence(name, constant.source, min(0.0, *changes), max(0.0, *changes)))
    for feature in (one for one in work.code.unmeasured if one not in work.without):
        exposed = replace(work, without=(*work.without, feature))
        change_s = simulate_step(exposed, values).total - parts.total
        influences.append(Influence(f"{feature}=off", "not measured", min(0.0, change_s), max(0.0, change_s)))
    error_s = constants[f"stacks.{work.stack}.error"].value * parts.total
    low_s = math.hypot(error_s, *(influence.low_s for influence in influences))
    high_s = math.hypot(error_s, *(influence.high_s for influence in influences))
    influences.sort(key=lambda influence: influence.low_s - influence.high_s)
    return StepInterval(parts, parts.total - low_s, parts.total + high_s, tuple(influences))
