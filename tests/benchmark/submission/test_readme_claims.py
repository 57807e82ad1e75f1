"""The README of a package says what its runs support, and names what they do not."""

import json
from pathlib import Path
from typing import Any

from benchmark.results.recorded_run import RecordedRun, read_recorded_run
from benchmark.submission.readme_claims import CLAIMS, PUBLISHED_DATA, supported_claims
from tests.benchmark.review.damage import Log
from tests.benchmark.review.fixture import records, write_run

FROM_INPUTS = {"the training data", "the validation data", "the digests of the initial checkpoint"}


def run_of(folder: Path, inputs: dict[str, Any] | None = None, **values: object) -> RecordedRun:
    log = Log(records(1))
    for key, value in values.items():
        log.set(key, value)
    path = write_run(folder, log.records)
    if inputs is not None:
        (folder / "config.json").write_text('{"result_number": 0}')
        (folder / "events.jsonl").write_text(json.dumps({"time_ms": 1, "key": "inputs", "value": inputs}) + "\n")
    return read_recorded_run(path)


def untold(*runs: RecordedRun) -> set[str]:
    return set(supported_claims(runs)[1])


def stamped(**changed: str) -> dict[str, Any]:
    digests = {**PUBLISHED_DATA, **changed}
    return {"/c4/data": {"md5": digests}, "/c4/checkpoint": {"md5": {"checkpoint": "5" * 32}}}


def test_logs_alone_support_what_they_log(tmp_path: Path) -> None:
    told, rest = supported_claims([run_of(tmp_path)])
    assert set(rest) == FROM_INPUTS
    assert len(told) == len(CLAIMS) - len(FROM_INPUTS)
    assert "Each run stops at its first value at or below 2.69." in told


def test_digests_that_mlcommons_published_support_the_data(tmp_path: Path) -> None:
    good = run_of(tmp_path / "a", stamped())
    assert untold(good) == set()
    other = run_of(tmp_path / "b", stamped(**{"c4_en_7_c4_spm_text_document.bin": "6" * 32}))
    assert untold(good, other) == {"the training data"}
    without = run_of(tmp_path / "c", {"/c4/checkpoint": None})
    assert untold(without) == FROM_INPUTS


def test_each_sentence_falls_with_its_record(tmp_path: Path) -> None:
    for number, (key, value, topic) in enumerate(
        (
            ("eval_samples", 100, "the size of the validation set"),
            ("max_sequence_length", 1024, "the sequence length"),
            ("init_checkpoint_step", 4000, "the starting point"),
            ("opt_weight_decay", 0.01, "the optimizer"),
        )
    ):
        assert untold(run_of(tmp_path / str(number), None, **{key: value})) == FROM_INPUTS | {topic}
    log = Log(records(1))
    log.metadata("eval_accuracy", 3, epoch_num=7)
    late = read_recorded_run(write_run(tmp_path / "late", log.records))
    assert untold(late) == FROM_INPUTS | {"the cadence of evaluations"}
    log = Log(records(1))
    log.set("eval_accuracy", 2.6895, 20)
    assert "the stop at the target" in untold(read_recorded_run(write_run(tmp_path / "on", log.records)))
    assert supported_claims([])[0] == []
