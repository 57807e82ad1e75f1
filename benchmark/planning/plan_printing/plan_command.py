"""What ``plan`` prints: a plan, a search, the backtest."""

import json
from dataclasses import asdict

from benchmark.config.run_config import RunConfig
from benchmark.planning.backtesting.backtest import backtest
from benchmark.planning.backtesting.backtest_text import format_backtest
from benchmark.planning.dry_runs.dry_run import dry_run
from benchmark.planning.layout_search.search_layouts import format_search, search_layouts
from benchmark.planning.plan_printing.plan_text import format_run_plan
from benchmark.planning.run_plans.plan_options import PlanOptions, require_possible
from benchmark.planning.run_plans.run_plan import make_plan
from benchmark.planning.step_model.machine_constants import committed_constants
from stage.errors import CheckFailed, InputError


def print_plan(config: RunConfig, options: PlanOptions, *, as_json: bool) -> int:
    """Raises CheckFailed, after printing, for a run that does not fit in memory; InputError for bad options."""
    require_possible(config, options)  # complains before the seconds of the dry run
    examined = dry_run(config) if options.stack == "ours" else None
    made = make_plan(config, examined, options)
    print(json.dumps(asdict(made)) if as_json else format_run_plan(made, config))
    if made.complaint is not None:
        raise CheckFailed(made.complaint)
    return 0


def print_search(config: RunConfig, options: PlanOptions, *, as_json: bool) -> int:
    """Raises InputError where no layout can run."""
    require_possible(config, options)
    if options.mfu is not None or options.tflops is not None:
        raise InputError("--search finds the speed of each layout: leave out --mfu and --tflops")
    found = search_layouts(config, options, committed_constants())
    print(json.dumps(asdict(found)) if as_json else format_search(found, config))
    return 0


def print_backtest(*, as_json: bool) -> int:
    tested = backtest()
    if as_json:
        rows = [{**asdict(each), "error": each.error} for each in tested.comparisons]
        print(json.dumps({**asdict(tested), "comparisons": rows}))
    else:
        print(format_backtest(tested))
    return 0
