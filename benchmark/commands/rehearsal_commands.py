"""Commands that try the whole path at a small size: rehearse, reference-points."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from benchmark.config.benchmarks import REHEARSALS
from stage.cli import choose


@dataclass(frozen=True)
class RehearseCommand:
    """Run the whole benchmark at a small size on this machine: corpus, tokenizer, dataset, checkpoint, conversion,
    checksums, timed run, review, report. Valid outputs of earlier calls are used again; a killed run is continued;
    otherwise each call is a new run with a new seed. rehearsal_llama has no checkpoint.

    Example: python -m benchmark rehearse rehearsal_llama --work-dir runs/rehearsal_llama
    """

    benchmark: Annotated[str, tyro.conf.Positional] = "rehearsal"
    """rehearsal: of GPT-3; rehearsal_llama: of Llama 3.1."""
    c4_path: Path | None = None
    """Use this text instead of the generated one: DIR/en/c4-train.*.json.gz and DIR/c4-validation*.json."""
    work_dir: Path | None = None
    """Folder for all outputs; runs/BENCHMARK by default."""
    seed: int | None = None
    """Seed of the run's data order; drawn at random by default."""
    master_port: int | None = None
    """Port for the processes to meet at; a free one by default."""

    def run(self) -> int:
        from benchmark.rehearsal.rehearse import rehearse

        benchmark = REHEARSALS[choose(self.benchmark, REHEARSALS, "rehearsal")]
        work_dir = self.work_dir or Path("runs") / benchmark.name
        return rehearse(benchmark, work_dir, c4_path=self.c4_path, seed=self.seed, master_port=self.master_port)


@dataclass(frozen=True)
class ReferencePointsCommand:
    """Write the convergence points of runs in the format of the official reference points. The runs are finished ones,
    or rehearsals made now, each with a seed of its own. Review judges rehearsals by the committed files,
    benchmark/results/rehearsal_points.json and rehearsal_llama_points.json.

    Example: python -m benchmark reference-points --seeds 8 --output points.json
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Folders of finished runs."""
    benchmark: str = "rehearsal"
    """The rehearsal to run: rehearsal or rehearsal_llama."""
    seeds: int = 0
    """Number of rehearsals to run first, in --work-dir."""
    work_dir: Path = Path("runs/reference_points")
    """Folder for these runs; runs already finished there count."""
    output: Path = Path("points.json")
    """File to write."""

    def run(self) -> int:
        from benchmark.rehearsal.reference_points import rehearse_seeds, write_reference_points

        benchmark = REHEARSALS[choose(self.benchmark, REHEARSALS, "rehearsal")]
        runs = [*self.runs, *rehearse_seeds(benchmark, self.seeds, self.work_dir)]
        print(f"{self.output}: {write_reference_points(runs, self.output)}")
        return 0
