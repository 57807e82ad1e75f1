"""Planned steps of this repository's code beside published ones of the same number format, and the changes of an FP8
step that stand between them.

python -m tests.backtest.planned_steps            # the table
python -m tests.backtest.planned_steps --gap      # steps by kind; the FP8 step after each added change

A change of --gap is a step of the same model, whose kernels or messages move other bytes; no constant is fitted.
"""

import argparse
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

from benchmark.config.benchmarks import BENCHMARKS
from benchmark.config.number_formats import Precision
from benchmark.config.system_config import System
from benchmark.config.systems import system_called
from benchmark.planning.run_plan.plan_text import PART_NAMES
from benchmark.planning.step_model import block_times
from benchmark.planning.step_model.machine_constants import Constant, Rates, committed_constants
from benchmark.planning.step_model.memory_formula import ACCUMULATOR_BYTES
from benchmark.planning.step_model.simulated_step import simulate_step, step_influences, step_interval
from benchmark.planning.step_model.step_time import StepTime
from benchmark.planning.step_model.workload import Workload, workload_of
from foundation.sizes import significant
from model.flops import train_flops_per_token

RECIPE = "NVIDIA's recipe, 25.04"
BRIDGE = "Megatron-Bridge, 25.11"


@dataclass(frozen=True)
class PlannedStep:
    """A step of the table: benchmark, system, batch size, and the published seconds and their source by format."""

    benchmark: str
    system: str
    batch_size: int
    published: Mapping[Precision, tuple[float, str]] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return f"`{self.benchmark}` `{self.system}` {self.batch_size:,}"

    @property
    def run_system(self) -> System:
        return system_called(self.system, self.benchmark)

    def work(self, precision: Precision, **fields: Any) -> Workload:
        system, benchmark = dataclasses.replace(self.run_system, **fields), BENCHMARKS[self.benchmark]
        return workload_of(
            benchmark.model,
            self.batch_size,
            system,
            stack="ours",
            precision=precision,
            bf16_layers=benchmark.bf16_layers,
        )


STEPS = (
    PlannedStep("gpt3_175b", "dgxh100_n64", 2048, {"fp8": (9.49, "NVIDIA, v4.1")}),
    PlannedStep("gpt3_175b", "dgxh100_n128", 2048),
    PlannedStep("llama31_8b", "dgxh100_n1", 16),
    PlannedStep("llama31_8b", "dgxh100_n1", 128, {"bf16": (12.27, RECIPE), "fp8": (9.07, BRIDGE)}),
    PlannedStep("llama31_8b", "h200_n1", 16),
    PlannedStep("llama31_8b", "h200_n1", 128),
    PlannedStep("llama31_8b", "b200_n1", 16),
    PlannedStep("llama31_8b", "b200_n1", 128, {"fp8": (4.28, BRIDGE)}),
    PlannedStep("llama31_8b", "dgxh100_n8", 16),
    PlannedStep("llama31_8b", "h200_n8", 16),
    PlannedStep("llama31_8b", "b200_n8", 16),
)
"""Published figures: docs/facts/fp8.md 4."""
SMALLEST_PART = 0.002
"""Share of a step from which a part is named."""


def rates_of(work: Workload) -> Rates:
    return committed_constants().rates(work.accelerator, work.stack)


def table_lines() -> Iterator[str]:
    """Yield the table in Markdown."""
    titles = "BF16 step (interval), MFU | published | FP8 step | with BF16 weight gradients | published"
    yield f"| benchmark, system, batch | {titles} |"
    yield "|---|" + "---:|" * 5
    for step in STEPS:
        cells = [str(step), _planned(step, "bf16"), _published(step, "bf16"), _planned(step, "fp8")]
        cells += [_planned(step, "fp8", fp8_weight_gradients=False), _published(step, "fp8")]
        yield f"| {' | '.join(cells)} |"


def _planned(step: PlannedStep, precision: Precision, **fields: Any) -> str:
    work, system = step.work(precision, **fields), step.run_system
    rates, model = rates_of(work), BENCHMARKS[step.benchmark].model
    seconds = simulate_step(work, rates).total
    low, high = step_interval(work, rates, seconds, step_influences(work, rates, seconds))
    flops = step.batch_size * model.seq_length * train_flops_per_token(model)
    peak_tflops = system.peak_tflops_in(precision)
    assert peak_tflops is not None
    mfu = flops / (seconds * system.num_devices * peak_tflops * 1e12)
    return f"{_text(seconds)} s ({_text(low)} to {_text(high)}), {100 * mfu:.1f} %"


def _published(step: PlannedStep, precision: Precision) -> str:
    if precision not in step.published:
        return "none"
    seconds, source = step.published[precision]
    return f"{_text(seconds)} s ({source})"


def _text(seconds: float) -> str:
    return significant(seconds, 3)


@dataclass(frozen=True)
class Change:
    """A change of the code, added to those before it."""

    title: str
    replaced: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Names of the step model's modules, such as ``block_times._sums``, and their values with the change."""
    constants: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Constants of the table that follow from the change."""
    possible: Callable[[System], bool] = lambda system: True


def _sums_in_product(_: Workload, weights: int) -> tuple[float, float]:
    return 2.0 * ACCUMULATOR_BYTES * weights, 0.0


CHANGES = (
    Change(
        "sums of weight gradients in the product",
        replaced={"block_times.sums_of_products": _sums_in_product},
        possible=lambda system: not system.shard_gradients,
    ),
    Change(
        "no tensor-parallel message exposed, and no message slows products",
        replaced={"block_times.maximum_s": lambda *_, **__: 0.0},
        constants={"stacks.ours.tensor_hidden": 1.0, "stacks.ours.overlap_slowdown": 0.0},
    ),
    Change("every operation accounted for: no losses", constants={"stacks.ours.losses": 0.0}),
    Change("no rank waits for the slowest", constants={"stacks.ours.jitter_fp8": 0.0}),
)
MODULES = {"block_times": block_times}


def gap_lines() -> Iterator[str]:
    """Yield a table in Markdown: each FP8 step with a published one, after each change."""
    steps = _published_in_fp8()
    columns = [list(changed_steps(step)) for step in steps]
    yield "| each change with those above it | " + " | ".join(map(str, steps)) + " |"
    yield "|---|" + "---:|" * len(steps)
    titles = ["as it is", *(change.title for change in CHANGES)]
    for title, *cells in zip(titles, *(map(_seconds_and_gain, column) for column in columns), strict=True):
        yield f"| {title} | {' | '.join(cells)} |"
    yield f"| published | {' | '.join(_published(step, 'fp8') for step in steps)} |"


def part_lines() -> Iterator[str]:
    """Yield a table in Markdown: the seconds of these steps by kind, in both formats."""
    formats: tuple[Precision, ...] = ("bf16", "fp8")
    works = [(step, step.work(precision)) for step in _published_in_fp8() for precision in formats]
    parts = [simulate_step(work, rates_of(work)) for _, work in works]
    yield "| | " + " | ".join(f"{step}, {work.precision.upper()}" for step, work in works) + " |"
    yield "|---|" + "---:|" * len(works)
    for name, title in PART_NAMES.items():
        seconds = [getattr(column, name) for column in parts]
        if any(part > SMALLEST_PART * column.total for part, column in zip(seconds, parts, strict=True)):
            yield f"| {title} | {' | '.join(map(_text, seconds))} |"
    yield f"| step, s | {' | '.join(_text(column.total) for column in parts)} |"


def _published_in_fp8() -> list[PlannedStep]:
    return [step for step in STEPS if "fp8" in step.published]


def _seconds_and_gain(change: tuple[StepTime, float | None]) -> str:
    seconds, gain = change
    return f"{_text(seconds.total)} s" + ("" if gain is None else f", -{gain:.2f}".replace("--", "+"))


def changed_steps(step: PlannedStep) -> Iterator[tuple[StepTime, float | None]]:
    """Yield the FP8 step as it is, and after each change with the seconds that it gains; None: the system has none of
    it."""
    work = step.work("fp8")
    seconds = simulate_step(work, rates_of(work))
    yield seconds, None
    constants: dict[str, Constant] = {}
    with contextlib.ExitStack() as stack:
        for change in CHANGES:
            if not change.possible(step.run_system):
                yield seconds, None
                continue
            constants |= {name: Constant(value, value, value, "changed") for name, value in change.constants.items()}
            for name, value in change.replaced.items():
                module, _, attribute = name.partition(".")
                stack.enter_context(mock.patch.object(MODULES[module], attribute, value))
            before_s = seconds.total
            seconds = simulate_step(work, rates_of(work).changed(constants))
            yield seconds, before_s - seconds.total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gap", action="store_true", help="steps by kind, and the FP8 step after each change")
    if parser.parse_args().gap:
        print(*part_lines(), "", *gap_lines(), sep="\n")
    else:
        print(*table_lines(), sep="\n")


if __name__ == "__main__":
    main()
