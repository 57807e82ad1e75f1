"""Write ``published_runs.csv``, the table of runs of published rounds.

Run python -m benchmark.results.write_published FOLDER…; a folder is training_results_v4.1 and the like.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmark.results.frames import SYSTEM_KEYS, csv_text, runs_frame
from benchmark.results.judged import GPT3
from benchmark.results.run_columns import PUBLISHED_RUNS
from benchmark.results.subjects import SubmissionPackage, is_package, package_ruleset, subfolders
from stage.errors import InputError, run_command
from stage.outputs.publish import write_text


def write_published(rounds: Sequence[Path], output: Path) -> int:
    """Write the table. Numbers have ten significant digits: more than any quantity in a log has, except counts.

    Raises InputError if there is no result of gpt3.
    """
    packages = [folder for one in rounds for folder in subfolders(one.absolute()) if is_package(folder)]
    found = (one for package in packages for one in SubmissionPackage(package, package_ruleset(package, None)).sets)
    sets = [one for one in found if one.judged.name == GPT3.name]
    if not sets:
        raise InputError("no results of gpt3 in the folders given; give rounds, such as training_results_v4.1")
    frame = runs_frame(sets).sort_values([*SYSTEM_KEYS, "file"])
    write_text(output, csv_text(frame, float_format="%.10g", date_format="%Y-%m-%dT%H:%M:%S.%f%z"))
    print(f"{output}: {len(frame)} rows, {output.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    run_command(lambda: write_published([Path(path) for path in sys.argv[1:]], PUBLISHED_RUNS))
