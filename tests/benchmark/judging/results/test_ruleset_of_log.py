"""A log outside its round's folder is judged by the rules of its time."""

from pathlib import Path

import pytest

from benchmark.judging.results.judged import GPT3, LLAMA8B, LLAMA405B, Judged
from benchmark.judging.results.ruleset_of_log import ruleset_of_log
from benchmark.judging.results.subjects import find_subjects
from benchmark.run_record.events.mllog import parse_log

DAYS_MS = 86_400_000
OCTOBER_2025 = 1_759_900_000_000


@pytest.mark.parametrize(
    ("judged", "time_ms", "key", "ruleset"),
    [
        (LLAMA8B, OCTOBER_2025, "opt_name", "5.1.0"),
        (LLAMA8B, OCTOBER_2025, "tensor_parallelism", "6.1.0"),
        (LLAMA8B, OCTOBER_2025 + 60 * DAYS_MS, "opt_name", "6.0.0"),
        (LLAMA8B, OCTOBER_2025 + 300 * DAYS_MS, "opt_name", "6.1.0"),
        (LLAMA405B, OCTOBER_2025 - 160 * DAYS_MS, "opt_name", "5.0.0"),
        (LLAMA405B, OCTOBER_2025, "opt_name", "5.1.0"),
        (GPT3, 1_683_981_853_223, "opt_name", "3.0.0"),
        (GPT3, 1_728_567_591_505, "opt_name", "4.1.0"),
        (GPT3, OCTOBER_2025, "opt_name", "4.1.0"),
    ],
)
def test_ruleset_by_time_and_keys(judged: Judged, time_ms: int, key: str, ruleset: str) -> None:
    line = f':::MLLOG {{"key": "{key}", "value": 1, "time_ms": {time_ms}, "metadata": {{}}}}\n'
    assert ruleset_of_log(parse_log(Path("log"), line.encode()), judged) == ruleset


def test_path_and_option_come_first(tmp_path: Path) -> None:
    for folder in ("v6.0/ACME", "elsewhere/ACME"):
        path = tmp_path / folder / "result_0.txt"
        path.parent.mkdir(parents=True)
        record = '"value": "llama31_8b", "metadata": {}'
        path.write_text(f':::MLLOG {{"key": "submission_benchmark", {record}, "time_ms": {OCTOBER_2025}}}\n')
    assert [one.ruleset for one in find_subjects([tmp_path / "v6.0"], None)] == ["6.0.0"]
    assert [one.ruleset for one in find_subjects([tmp_path / "elsewhere"], None)] == ["5.1.0"]
    assert [one.ruleset for one in find_subjects([tmp_path / "elsewhere"], "6.1.0")] == ["6.1.0"]
