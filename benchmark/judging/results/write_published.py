"""Write the tables of published runs, such as ``published_runs.csv``, of the benchmarks that have such a table.

Run python -m benchmark.judging.results.write_published FOLDER…; a folder is training_results_v4.1 and the like.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmark.judging.results.frames import SYSTEM_KEYS, csv_text, runs_frame
from benchmark.judging.results.judged import OFFICIAL
from benchmark.judging.results.subjects import SubmissionPackage, is_package, package_ruleset, subfolders
from foundation.errors import InputError, run_command
from foundation.outputs.publish import write_text


def write_published(rounds: Sequence[Path]) -> int:
    """Write the tables. Numbers have ten significant digits: more than any quantity in a log has, except counts.

    Raises InputError if there is no result of a benchmark with a table.
    """
    packages = [package for folder in rounds for package in subfolders(folder.absolute()) if is_package(package)]
    submissions = [SubmissionPackage(package, package_ruleset(package, None)) for package in packages]
    sets = [results for submission in submissions for results in submission.sets]
    tables = {judged.name: judged.published for judged in OFFICIAL.values() if judged.published is not None}
    if not any(results.judged.name in tables for results in sets):
        raise InputError(f"no results of {', '.join(tables)} there; give rounds, such as training_results_v4.1")
    for name, output in tables.items():
        frame = runs_frame(results for results in sets if results.judged.name == name)
        frame = frame.sort_values([*SYSTEM_KEYS, "file"])
        if len(frame):
            write_text(output, csv_text(frame, float_format="%.10g", date_format="%Y-%m-%dT%H:%M:%S.%f%z"))
            print(f"{output}: {len(frame)} rows, {output.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    run_command(lambda: write_published([Path(path) for path in sys.argv[1:]]))
