"""Write published_traces.csv anew: python -m benchmark.review.published.collect_traces ROUNDS

ROUNDS holds v3.0, v3.1, v4.0 and v4.1, each with the SUBMITTER/{results,systems} of mlcommons/training_results_v….
"""

import csv
import dataclasses
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmark.results.mllog import read_log
from benchmark.results.run_summary import RunSummary, summarize
from benchmark.results.system_description import read_system
from benchmark.review.published.published_traces import DECIMALS, TABLE, PublishedTrace
from stage.errors import InputError, run_command


def collect(rounds: Path) -> Iterator[PublishedTrace]:
    """One entry per log. Raises InputError for a log without evaluations or without its system description."""
    for path in sorted(rounds.glob("v*/*/results/*/gpt3/result_*.txt")):
        run = summarize(read_log(path))
        system, folder = path.parts[-3], path.parts[-5]
        description = read_system(path.parents[3] / "systems" / f"{system}.json")
        if description.accelerators is None or run.run_start_ms is None or not run.evaluations:
            raise InputError(f"{path}: no evaluations, or no system description; give folders as they were published")
        times = [run.run_start_ms, *(one.time_ms for one in run.evaluations)]
        yield PublishedTrace(
            round=path.parts[-6].removeprefix("v"),
            folder=folder,
            system=system,
            file=path.name,
            submitter=description.string("submitter") or "",
            org=run.org or "",
            platform=run.platform or "",
            accelerator=description.string("accelerator_model_name") or "",
            accelerators=description.accelerators,
            global_batch_size=int(run.global_batch_size or 0),
            run_start_ms=run.run_start_ms,
            intervals_ms=tuple(after - before for before, after in itertools.pairwise(times)),
            log_perplexities=tuple(_log_perplexities(run)),
        )


def _log_perplexities(run: RunSummary) -> Iterator[float]:
    for one in run.evaluations:
        if one.log_perplexity is None:
            raise InputError(f"{run.log.path}:{one.line}: no number; give logs as they were published")
        yield round(one.log_perplexity, DECIMALS)


def write_table(runs: Sequence[PublishedTrace], path: Path) -> None:
    names = [field.name for field in dataclasses.fields(PublishedTrace)]
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(names)
        for run in runs:
            fields = [getattr(run, name) for name in names]
            table.writerow([" ".join(map(repr, one)) if isinstance(one, tuple) else one for one in fields])


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        raise InputError(f"{len(arguments)} arguments; expected one, the folder that holds v3.0 to v4.1")
    runs = list(collect(Path(arguments[0])))
    if not runs:
        raise InputError(f"{arguments[0]}: no v*/SUBMITTER/results/SYSTEM/gpt3/result_*.txt; give the rounds' folder")
    write_table(runs, TABLE)
    print(f"{TABLE}: {len(runs)} runs of {len({(run.round, run.folder, run.system) for run in runs})} systems")
    return 0


if __name__ == "__main__":
    run_command(lambda: main(sys.argv[1:]))
