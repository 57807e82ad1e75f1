"""Commands that run before there is a dataset: collect the inputs, and estimate how long their preparation takes."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from data_prep.commands.shared_options import JsonOption, OutputOptions
from data_prep.preparation.artifacts import NEEDED, What, wanted_files
from data_prep.preparation.fetch import fetch, files_there, format_table, require_all
from data_prep.preparation.preparation_plan import (
    DATA,
    BenchmarkName,
    format_plans,
    make_plans,
    plans_as_json,
    with_rates,
)


@dataclass(frozen=True, kw_only=True)
class FetchCommand(OutputOptions):
    """Collect and check the benchmark's inputs, and list missing ones with their origins.

    Example: python -m data_prep fetch --output c4 --what train
    """

    output: Path
    """Folder for the files, which get the names and places in the examples of the other commands."""
    what: tuple[What, ...] = NEEDED
    """Kinds of files. 'validation' is for choosing another validation subset; 'dataset' is the ready-made output of
    preprocess, 'llama31-dataset' that of Llama 3.1 8B."""
    shards: str | None = None
    """Range FIRST-LAST of training shards, in place of 768-1023."""
    from_: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Take the files from this folder, by link or copy, and nothing from the network."""
    revision: str | None = None
    """Branch, tag or commit of the Hugging Face dataset that all files must come from. By default existing files stay,
    and the others come from the same commit, or from the newest."""
    list: bool = False
    """Only list the files and whether they are there."""

    def run(self) -> None:
        wanted = wanted_files(self.what, self.shards)
        if not self.list:
            fetch(self.output, wanted, source=self.from_, revision=self.revision, force=self.force)
        files = files_there(self.output, wanted)
        print(json.dumps(files, indent=1) if self.json else format_table(files))
        require_all(self.output, files)


@dataclass(frozen=True, kw_only=True)
class PlanPreparationCommand(JsonOption):
    """Estimate how long the benchmark's data takes to prepare, and what limits each step. Reads nothing.

    Example: python -m data_prep plan --nodes 1 8 --cores 64 --disk-mb-per-s 5000
    """

    benchmark: BenchmarkName = "gpt3_175b"
    """The benchmark whose data are prepared."""
    nodes: tuple[int, ...] = (1, 8)
    """Numbers of nodes, one plan for each."""
    cores: int = 64
    """Cores per node."""
    workers: int | None = None
    """The --workers of preprocess on each node; by default one per core."""
    mb_per_s_per_core: float | None = None
    """Text that one core tokenises, in 10^6 bytes per second; by default a measured rate."""
    disk_mb_per_s: float | None = None
    """Bytes that the file system reads and writes for all nodes together, in 10^6 per second."""
    network_mb_per_s: float | None = None
    """Bytes that arrive from Hugging Face, in 10^6 per second."""

    def run(self) -> None:
        rates = with_rates(tokenise=self.mb_per_s_per_core, disk=self.disk_mb_per_s, network=self.network_mb_per_s)
        data = DATA[self.benchmark]
        plans = make_plans(data, self.nodes, self.cores, rates, workers=self.workers)
        if self.json:
            print(json.dumps(plans_as_json(data, plans, rates), indent=1))
        else:
            print(format_plans(data, plans, rates))
