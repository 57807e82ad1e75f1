"""Define the claims about data and checkpoint that no review checks, and whether the runs support them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import checksums
from benchmark.config.run_config import Benchmark
from benchmark.results.recorded_run import RecordedRun
from checksums.md5_list import read_list

Runs = Sequence[RecordedRun]
Claim = tuple[str, Callable[[Runs], bool]]
"""The sentence, and a function that tells whether the runs support it."""
PUBLISHED_DATA: Mapping[str, str] = read_list(Path(checksums.__path__[0]) / "dataset_checksum.log")
"""MD5 of preprocessed files by name, as far as MLCommons published them."""


def claims_of(benchmark: Benchmark) -> dict[str, Claim]:
    """Return the claims by topic. The README of a package names unsupported topics as such."""
    files = benchmark.token_files
    claims = {
        "the training data": _about_data("Training", files.training),
        "the validation data": _about_data("Validation", (files.validation,)),
    }
    if benchmark.start_iterations:
        sentence = "The initial checkpoint is named by its digest in `manifests/`."
        claims["the digests of the initial checkpoint"] = sentence, _checkpoint_stamped
    return claims


def _about_data(kind: str, datasets: Sequence[str]) -> Claim:
    """Return the claim about some datasets: that each run recorded the digests that MLCommons published for them, or
    any digests where none are public."""
    names = [f"{name}{end}" for name in datasets for end in (".bin", ".idx")]
    public = PUBLISHED_DATA.keys() >= {*names}

    def supported(runs: Runs) -> bool:
        found = [(name, run.digests.get(name)) for run in runs for name in names]
        return all(PUBLISHED_DATA[name] == digest if public else digest is not None for name, digest in found)

    words = "with the digests that MLCommons published for them" if public else "named by their digests in `manifests/`"
    return f"{kind} data: {', '.join(f'{name}.bin' for name in datasets)}, {words}.", supported


def _checkpoint_stamped(runs: Runs) -> bool:
    """Return whether each run recorded a digest for an input that is not a data file."""

    def stamped(run: RecordedRun) -> bool:
        digests = run.digests.items()
        return any(digest is not None for name, digest in digests if not name.endswith((".bin", ".idx")))

    return all(map(stamped, runs))
