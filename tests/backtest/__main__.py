"""The step model against all published steps of the stacks that it describes: errors by stack.

python -m tests.backtest              # a line for each result, then the errors; ten seconds
python -m tests.backtest --json
python -m tests.backtest --fit        # fits the constants anew, writes them and the stacks' errors; some minutes
"""

import argparse
import dataclasses
import json
import sys

from benchmark.planning.step_model.machine_constants import TABLE, read_constants
from benchmark.planning.step_model.stacks import STACKS
from tests.backtest.comparison import compare, errors_of_stacks, summaries, table_text
from tests.backtest.fit_constants import DERIVED, FITTED, fit, with_values
from tests.backtest.published_results import LOW_POWER, backtest_constants, load_published_results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--fit", action="store_true", help="fit the constants anew and write them")
    chosen = parser.parse_args()
    if chosen.fit:
        write_fitted()
    constants = {**read_constants(TABLE), **read_constants(LOW_POWER)}
    compared = compare(load_published_results(), constants)
    if chosen.json:
        rows = [{**dataclasses.asdict(each), "error": each.error} for each in compared]
        print(
            json.dumps({"comparisons": rows, "summaries": [dataclasses.asdict(each) for each in summaries(compared)]})
        )
    else:
        print(table_text(compared))
    return 0


def write_fitted() -> None:
    """The fitted constants, then the errors that follow from them."""
    results = load_published_results()
    values = fit([each for each in results if each.fitted], backtest_constants())
    changed = {name: values[name] for name in (*FITTED, *DERIVED)}
    for path in (TABLE, LOW_POWER):
        path.write_text(with_values(path.read_text(), changed))
    found = summaries(compare(results, {**read_constants(TABLE), **read_constants(LOW_POWER)}))
    TABLE.write_text(with_values(TABLE.read_text(), errors_of_stacks(found, list(STACKS))))


if __name__ == "__main__":
    sys.exit(main())
