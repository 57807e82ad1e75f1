"""Everything that a run's evidence, its configuration and its log must have in common, without training a step."""

from dataclasses import dataclass

from benchmark.evidence.chain_and_log import StampedLog, log_deviations, went_back
from benchmark.evidence.chain_checks import chain_deviations
from benchmark.evidence.chain_coverage import coverage_gaps
from benchmark.evidence.companion import Companion, config_deviations
from benchmark.evidence.mismatch import Mismatch


@dataclass(frozen=True)
class EvidenceChecks:
    """What does not hold."""

    contradictions: tuple[Mismatch, ...]
    """No honest run leaves them."""
    gaps: tuple[Mismatch, ...]
    """Parts of the run that the chain does not cover."""

    @property
    def deviations(self) -> list[Mismatch]:
        return [*self.contradictions, *self.gaps]


def check_evidence(companion: Companion, log: StampedLog) -> EvidenceChecks:
    """Of a run and its MLPerf log."""
    chain, benchmark = companion.chain, companion.benchmark
    contradictions = (
        *config_deviations(companion),
        *chain_deviations(chain, benchmark, went_back=went_back(log)),
        *log_deviations(chain, log, benchmark),
    )
    return EvidenceChecks(contradictions, tuple(coverage_gaps(chain, log, benchmark)))
