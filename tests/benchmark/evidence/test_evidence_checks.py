"""Everything about a run's evidence at once. Falsified packages: tests/benchmark/review/rules/folders."""

import json
from pathlib import Path

from benchmark.evidence.chain_links import EVIDENCE
from benchmark.evidence.companion import CONFIG, read_companion
from benchmark.evidence.evidence_checks import check_evidence
from benchmark.results.mllog import read_log
from tests.benchmark.evidence.test_chain_and_log import log_of
from tests.benchmark.evidence.test_chain_checks import HONEST
from tests.benchmark.evidence.test_chain_links import write
from tests.benchmark.evidence.test_companion import ASKED


def test_contradictions_and_gaps_are_apart(tmp_path: Path) -> None:
    write(tmp_path / EVIDENCE, HONEST[:4])
    (tmp_path / CONFIG).write_text(json.dumps({"benchmark": ASKED, "seed": 18, "precision": "fp32"}))
    log = read_log(log_of(tmp_path / "result_0.txt", ("run_stop", None, {"status": "success"})))
    found = check_evidence(read_companion(tmp_path), log)
    assert [one.what for one in found.gaps] == ["the chain's end"]
    whats = [one.what for one in found.contradictions]
    assert whats[0] == "seed of config.json"
    assert "global_batch_size in the log" in whats
    assert found.deviations == [*found.contradictions, *found.gaps]
